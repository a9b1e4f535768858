// Label and tag what is selected; suggestions of what to label next; what the probe makes of it.

import { attempt, post } from "./api";
import { byId, fill, h, many, say } from "./dom";
import { store } from "./store";

export interface Changed { version: number; changed: number; ids: number[]; can_undo: boolean; words: string[]; tags: string[] }

export async function setLabel(ids: number[], label: string | null): Promise<void> {
  if (!ids.length) return say("Select images first: with the lasso, a box, or a click.");
  const done = await attempt(() => post<Changed>("/api/label", { ids, label }));
  if (done) took(done, label === null ? "without a label" : `labeled ${label}`);
}

export async function setTag(ids: number[], tag: string, remove = false): Promise<boolean> {
  if (!ids.length) { say("Select images first: with the lasso, a box, or a click."); return false; }
  const done = await attempt(() => post<Changed>("/api/tag", { ids, tag, remove }));
  if (done) took(done, remove ? `without the tag ${tag}` : `tagged ${tag}`);
  return Boolean(done);
}

export async function undo(): Promise<void> {
  const done = await attempt(() => post<Changed>("/api/undo", {}));
  if (done) took(done, "as before");
}

function took(done: Changed, what: string): void {
  if (done.version >= store.labelVersion) { // else another tab's change was heard of before this answer
    store.canUndo = done.can_undo;
    store.words = done.words;
    store.tags = done.tags;
  }
  say(`${many(done.changed, "image")} ${what}.`);
  store.tell("labels");
}

export function labelPanel(): HTMLElement {
  const word = h("input", { id: "label-word", list: "label-words", placeholder: "Label", "aria-label": "Label", autocomplete: "off", maxlength: 200 });
  const tag = h("input", { id: "tag-word", list: "tag-words", placeholder: "Tag", "aria-label": "Tag", autocomplete: "off", maxlength: 200 });
  const words = h("datalist", { id: "label-words" }), tags = h("datalist", { id: "tag-words" });
  const chips = h("div", { class: "chips", id: "label-chips" }), targets = h("p", { class: "quiet", id: "targets" });
  const probe = h("p", { class: "quiet", id: "probe" }), ways = h("div", { class: "chips", id: "ways" });
  const labelForm = h("form", { class: "row" }, word, h("button", { type: "submit", class: "main" }, "Label"), h("button", { type: "button", title: "Take the label away", onclick: () => void setLabel(store.targets(), null) }, "None"));
  const tagForm = h("form", { class: "row" }, tag, h("button", { type: "submit" }, "Tag"), h("button", { type: "button", onclick: () => { if (tag.value.trim()) void setTag(store.targets(), tag.value, true); } }, "Untag"));
  labelForm.addEventListener("submit", event => { event.preventDefault(); if (word.value.trim()) void setLabel(store.targets(), word.value); });
  tagForm.addEventListener("submit", event => { event.preventDefault(); if (tag.value.trim()) void setTag(store.targets(), tag.value); });

  const redraw = (): void => {
    const count = store.targets().length;
    targets.textContent = count ? `For ${store.marks.size ? "the marked " : ""}${many(count, "image")}.` : "Select images on the map or in the grid.";
    fill(words, ...store.words.map(each => h("option", { value: each })));
    fill(tags, ...store.tags.map(each => h("option", { value: each })));
    fill(chips, ...store.words.slice(0, 30).map((each, n) => h("button", { type: "button", class: "chip", onclick: () => void setLabel(store.targets(), each) }, n < 9 && h("kbd", {}, String(n + 1)), each)));
    const own = [...store.entries.values()].filter(([label]) => label).length, found = store.predictions;
    probe.textContent = found.seconds === null
      ? `${many(own, "label")} given here. With two classes a probe on the frozen features predicts all other images.`
      : `${many(own, "label")} given here. A probe on ${many(found.labeled ?? 0, "labeled image")} of ${many(found.classes ?? 0, "class")}${found.classes === 1 ? "" : "es"} was refitted in ${(1000 * found.seconds).toFixed(0)} ms; color by prediction or uncertainty.`.replace("classs", "class");
    byId<HTMLButtonElement>("undo").disabled = !store.canUndo;
  };
  store.on(["selection", "marks", "labels", "predictions"], redraw);
  queueMicrotask(() => {
    fill(ways, ...Object.entries(store.ways).map(([way, about]) => h("button", { type: "button", class: "chip", title: about, onclick: () => void suggest(way) }, way)));
    redraw();
  });
  return h("div", {},
    h("h3", {}, "Label"), targets, labelForm, chips, words,
    h("h3", {}, "Tag"), tagForm, tags,
    h("h3", {}, "What to label next"), h("p", { class: "quiet" }, "Images without a label, chosen by the features:"), ways, probe);
}

async function suggest(way: string): Promise<void> {
  const isNewest = store.selecting.take();
  const found = await attempt(() => post<{ ids: number[]; about: string }>("/api/suggest", { way, count: 24 }));
  if (!found || !isNewest()) return;
  store.select(found.ids, "to label next");
  say(found.about);
}
