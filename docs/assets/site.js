// What the theme's script draws: landmarks with names of their own, and parts that scroll can be reached with the keyboard.
function mend() {
  let number = 0;
  for (const part of document.querySelectorAll("nav.md-code__nav, nav.md-nav nav.md-nav")) {
    number += 1;
    if (part.dataset.named) continue;
    const label = document.getElementById(part.getAttribute("aria-labelledby"));
    const name = part.getAttribute("aria-label") || (label ? label.textContent.trim() : "Code");
    part.removeAttribute("aria-labelledby");
    part.setAttribute("aria-label", `${name}, part ${number}`);
    part.dataset.named = "yes";
  }
  const search = document.querySelector("[data-md-component=search][role=dialog]");
  if (search && !search.hasAttribute("aria-label")) search.setAttribute("aria-label", "Search");
  for (const part of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) {
    if (part.getAttribute("tabindex") !== "0") part.setAttribute("tabindex", "0");
  }
}
document.addEventListener("DOMContentLoaded", () => {
  mend();
  new MutationObserver(mend).observe(document.body, { attributeFilter: ["tabindex"], childList: true, subtree: true });
});
