"use strict";
/* The theme button: system, light, dark. Without a script the page follows the system. */
(() => {
  const order = ["system", "light", "dark"];
  const button = document.getElementById("theme");
  let kept = null;
  try { kept = localStorage.getItem("natgrad-theme"); } catch { /* a page on the disk may have no storage */ }
  let now = order.includes(kept) ? kept : "system";
  const show = () => {
    if (now === "system") document.documentElement.removeAttribute("data-theme");
    else document.documentElement.dataset.theme = now;
    button.textContent = `Theme: ${now}`;
    button.setAttribute("aria-label", `Theme: ${now}. Press for the next one.`);
  };
  button.addEventListener("click", () => {
    now = order[(order.indexOf(now) + 1) % order.length];
    try { localStorage.setItem("natgrad-theme", now); } catch { /* as above */ }
    show();
  });
  button.hidden = false;
  show();
})();
