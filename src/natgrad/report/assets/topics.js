"use strict";
/* The topic explorer: the chosen topic's words by relevance, λ log φ + (1 − λ) log (φ / p), computed from the page's own data. */
(() => {
  const data = JSON.parse(document.getElementById("topics-data").textContent);
  const $ = (id) => document.getElementById(id);
  const circles = new Map([...document.querySelectorAll(".map .topic")].map((c) => [Number(c.dataset.topic), c]));
  const choice = $("topic-choice"), slider = $("relevance");
  const make = (name, text, className) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    if (className) element.className = className;
    return element;
  };
  const percent = (share) => {
    const value = 100 * share;
    return `${value.toFixed(value >= 9.95 ? 0 : value >= 0.995 ? 1 : value >= 0.0995 ? 2 : 3)} %`;
  };

  function ranked(topic, weight) {
    return topic.words
      .map((word, place) => ({ word, log: topic.log[place], score: topic.log[place] - (1 - weight) * data.overall[word] }))
      .sort((a, b) => b.score - a.score || b.log - a.log)
      .slice(0, data.show);
  }

  function showWords(topic) {
    const found = ranked(topic, Number(slider.value));
    const parts = found.map(({ word, log }) => {
      const all = Math.exp(data.overall[word]);
      return { own: Math.min(topic.size * Math.exp(log), all), all };
    });
    const widest = Math.max(...parts.map((part) => part.all));
    const rows = found.map(({ word, log }, place) => {
      const row = make("li"), track = make("span", undefined, "track"), share = Math.exp(log);
      for (const kind of ["all", "own"]) {
        const bar = make("i", undefined, kind);
        bar.style.width = `${(100 * parts[place][kind]) / widest}%`;
        track.append(bar);
      }
      const value = make("span", percent(share), "value");
      const sd = Math.sqrt((share * (1 - share)) / (topic.total + 1));
      value.append(make("span", ` ± ${percent(sd).replace(" %", "")}`, "spread"));
      const name = make("span", data.words[word], "word");
      name.title = data.words[word];
      row.append(name, track, value);
      return row;
    });
    $("topic-words").replaceChildren(...rows);
    $("relevance-value").textContent = Number(slider.value).toFixed(2).replace(/0$/, "");
  }

  function show(k) {
    const topic = data.topics[k];
    choice.value = String(k);
    for (const [number, circle] of circles) {
      circle.setAttribute("aria-pressed", String(number === k));
      circle.setAttribute("tabindex", number === k ? "0" : "-1");
    }
    $("topic-size").textContent = `Topic ${k} has ${topic.words_of_size}.`;
    showWords(topic);
    const rows = topic.documents.map(([text, share]) => {
      const row = make("li", `${text} `);
      row.append(make("span", percent(share), "share"));
      return row;
    });
    $("topic-documents").replaceChildren(...rows);
    $("documents-part").hidden = rows.length === 0;
  }

  const K = data.topics.length;
  const current = () => Number(choice.value);
  const move = (by) => show((current() + by + K) % K);
  choice.addEventListener("change", () => show(current()));
  slider.addEventListener("input", () => showWords(data.topics[current()]));
  $("topic-previous").addEventListener("click", () => move(-1));
  $("topic-next").addEventListener("click", () => move(1));
  for (const [k, circle] of circles) {
    circle.addEventListener("click", () => show(k));
    circle.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (by) { move(by); circles.get(current()).focus(); }
      else if (event.key === "Enter" || event.key === " ") show(k);
      else return;
      event.preventDefault();
    });
  }
  for (const button of document.querySelectorAll("[data-show]")) {
    button.addEventListener("click", () => {
      show(Number(button.dataset.show));
      $("topics").scrollIntoView();
      choice.focus({ preventScroll: true });
    });
  }
  show(current());
})();
