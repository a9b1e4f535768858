// Almost equal images and labels that are likely wrong, one after the other; exports.

import { attempt, getJson, post } from "./api";
import { fill, h, many, say } from "./dom";
import { items } from "./items";
import { setLabel, setTag } from "./label_panel";
import { store } from "./store";
import { thumbs } from "./thumbs";
import { Turns } from "./turns";

interface Group { members: number[]; size: number; s: number; settled: boolean }
interface Doubt { id: number; label: string; prediction: string; score: number }

const SHOWN = 12; // of a group
let groups: Group[] = [];
let at = 0;
const turns = new Turns();

export function picture(id: number, side = 64): HTMLCanvasElement {
  const canvas = h("canvas", { width: 96, height: 96, class: "thumb", title: items.get(id)?.name ?? `image ${id}` });
  canvas.style.width = canvas.style.height = `${side}px`;
  const paint = (): void => {
    const found = thumbs.get(id, 96, paint);
    if (!found) return;
    canvas.getContext("2d")!.drawImage(found, 0, 0);
    canvas.dataset.drawn = "1";
  };
  paint();
  return canvas;
}

export function settlePanel(): HTMLElement {
  const threshold = h("input", { type: "number", min: 0.5, max: 1, step: 0.005, value: 0.99, "aria-label": "Least cosine", id: "threshold" });
  const found = h("div", { id: "groups" }), doubts = h("div", { id: "doubts" });
  const search = async (): Promise<void> => { await attempt(() => post("/api/duplicates", { threshold: Number(threshold.value) })); };
  store.on(["jobs"], () => {
    const newest = [...store.jobs.values()].filter(job => job.kind === "duplicates").at(-1);
    if (newest && newest.state === "done" && found.dataset.job !== String(newest.id)) {
      found.dataset.job = String(newest.id);
      void load(found);
    }
    const last = [...store.jobs.values()].filter(job => job.kind === "doubts").at(-1);
    if (last && last.state === "done" && doubts.dataset.job !== String(last.id)) {
      doubts.dataset.job = String(last.id);
      void doubt(doubts);
    }
  });
  return h("div", {},
    h("h3", {}, "Almost equal images"),
    h("div", { class: "row" }, h("label", { class: "field" }, "cosine at least ", threshold), h("button", { type: "button", id: "find-duplicates", onclick: () => void search() }, "Find")), found,
    h("h3", {}, "Labels that are likely wrong"),
    h("button", { type: "button", id: "find-doubts", onclick: () => void attempt(() => post("/api/doubts", {})) }, "Find"), doubts,
    h("h3", {}, "Export"),
    h("div", { class: "chips" },
      h("a", { class: "chip", href: "/api/export.csv", download: "images.csv" }, "CSV"),
      h("a", { class: "chip", href: "/api/export.parquet", download: "images.parquet" }, "Parquet with features"),
      h("button", { type: "button", class: "chip", id: "export-links", onclick: () => void folders(false) }, "Class folders, links"),
      h("button", { type: "button", class: "chip", onclick: () => void folders(true) }, "Class folders, copies")),
    h("p", { class: "quiet" }, "Labels are kept in ", h("code", {}, store.files.labels), "; class folders go to ", h("code", {}, store.files.exports), "."));
}

async function load(element: HTMLElement): Promise<void> {
  const isNewest = turns.take();
  const answer = await attempt(() => getJson<{ groups: Group[]; all: number }>("/api/duplicates/found"));
  if (!answer || !isNewest()) return;
  groups = answer.groups;
  at = Math.max(0, groups.findIndex(group => !group.settled));
  draw(element);
}

function draw(element: HTMLElement): void {
  const open = groups.filter(group => !group.settled).length, group = groups[at];
  if (!group) return fill(element, h("p", { class: "quiet" }, "No almost equal images."));
  const settle = async (tag: string, ids: number[]): Promise<void> => {
    if (!(await setTag(ids, tag))) return;
    group.settled = true;
    const next = groups.findIndex(each => !each.settled);
    at = next >= 0 ? next : at;
    draw(element);
  };
  const rest = group.members.slice(1);
  fill(element,
    h("p", { class: "quiet" }, `Group ${at + 1} of ${groups.length}, ${open} open. ${many(group.size, "image")}${group.size > SHOWN ? `, the first ${SHOWN} shown` : ""}; cosines from ${group.s.toFixed(3)}.`),
    h("div", { class: "thumbs" }, ...group.members.slice(0, SHOWN).map((id, n) => h("figure", {}, picture(id), h("figcaption", {}, n ? "" : "kept")))),
    h("div", { class: "row" },
      h("button", { type: "button", class: "main", id: "settle-duplicate", onclick: () => void settle("duplicate", rest) }, `Tag ${rest.length} as duplicate${rest.length > 1 ? "s" : ""}`),
      h("button", { type: "button", onclick: () => void settle("not a duplicate", group.members) }, "Not duplicates")),
    h("div", { class: "row" },
      h("button", { type: "button", onclick: () => { at = (at + groups.length - 1) % groups.length; draw(element); } }, "Previous"),
      h("button", { type: "button", onclick: () => { at = (at + 1) % groups.length; draw(element); } }, "Next"),
      h("button", { type: "button", onclick: () => store.select(group.members, "almost equal") }, "Show")));
}

async function doubt(element: HTMLElement): Promise<void> {
  const isNewest = store.selecting.take();
  const found = await attempt(() => getJson<{ doubts: Doubt[] }>("/api/doubts/found"));
  if (!found) return fill(element);
  const rows = found.doubts.slice(0, 30).map(each => {
    const row: HTMLElement = h("li", {}, picture(each.id, 48),
      h("div", {}, h("b", {}, each.label), " \u2192 ", h("b", {}, each.prediction), h("small", {}, ` ${Math.round(100 * each.score)} %`),
        h("div", { class: "row" },
          h("button", { type: "button", onclick: () => { void setLabel([each.id], each.prediction); row.remove(); } }, `It is ${each.prediction}`),
          h("button", { type: "button", onclick: () => { void setLabel([each.id], each.label); row.remove(); } }, "It is right"))));
    return row;
  });
  fill(element, rows.length ? h("ul", { class: "doubts" }, ...rows) : h("p", {}, "None."));
  if (found.doubts.length && isNewest()) store.select(found.doubts.map(each => each.id), "whose label is in doubt");
}

async function folders(copies: boolean): Promise<void> {
  const done = await attempt(() => post<{ folder: string }>("/api/export/folders", { copy_files: copies }));
  if (done) say(`Writing ${done.folder}`);
}

