"use strict";
/* A page that is served while a fit goes on: asks its own server for news, and takes over what changed. */
(() => {
  let seen = null;
  const renew = async () => {
    const version = await (await fetch("/version")).text();
    if (version === seen) return;
    const fresh = new DOMParser().parseFromString(await (await fetch("/")).text(), "text/html");
    const main = fresh.querySelector("main");
    if (!main.dataset.live) { location.reload(); return; }
    const picked = document.querySelector(".pick:checked");
    const open = [...document.querySelectorAll("details")].map((part) => part.open);
    document.querySelector("main").replaceChildren(...main.childNodes);
    if (picked) document.getElementById(picked.id).checked = true;
    document.querySelectorAll("details").forEach((part, place) => { part.open = Boolean(open[place]); });
    seen = version;
  };
  /* The fit may end before the next question; then the page stays as it is. */
  const timer = setInterval(() => renew().catch(() => clearInterval(timer)), 1000);
})();
