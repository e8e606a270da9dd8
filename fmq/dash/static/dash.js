// Replaces the live part of a page whenever the server sends a new one. Without it pages still say
// all; they only do not change by themselves.
"use strict";

const live = document.getElementById("live");
const state = document.getElementById("state");

function say(text, isLost) {
  if (state.textContent !== text) state.textContent = text;
  state.classList.toggle("lost", isLost);
}

function isReading() {
  const chosen = document.getSelection();
  return chosen && !chosen.isCollapsed && live.contains(chosen.anchorNode);
}

function replace(markup) {
  // Do not take the text away that a reader is about to copy, nor the link that has the focus.
  if (isReading()) return;
  const focused = live.contains(document.activeElement) && document.activeElement.getAttribute("href");
  live.innerHTML = markup;
  if (focused) {
    const again = [...live.querySelectorAll("a")].find((each) => each.getAttribute("href") === focused);
    if (again) again.focus({ preventScroll: true });
  }
}

if (live && live.dataset.from) {
  const source = new EventSource(live.dataset.from);
  const time = () => new Date().toISOString().slice(11, 19);
  let seen = time();
  source.onmessage = (event) => {
    const said = JSON.parse(event.data);
    if (said.trouble) {
      say(`Nothing new since ${seen}: ${said.trouble}`, true);
    } else {
      seen = time();
      replace(said.live);
      say("Live.", false);
    }
  };
  source.onerror = () => say(`Nothing new since ${seen}: the pages do not answer.`, true);
}
