"""What a fit returns: factors, predictions, the bound, ways to go on."""
