// The keyboard, and the help that tells about it.

import { byId, fill, h } from "./dom";
import { similar } from "./finding";
import { setLabel, undo } from "./label_panel";
import { PointMap } from "./map";
import { store } from "./store";

export function key(event: KeyboardEvent, built: PointMap): void {
  const target = event.target as HTMLElement;
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) { store.clear(); (target as HTMLInputElement).blur?.(); return; }
  if (event.ctrlKey && event.key === "z" && !/INPUT|TEXTAREA/.test(target.tagName)) { event.preventDefault(); void undo(); return; }
  if (/INPUT|SELECT|TEXTAREA/.test(target.tagName) || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const onMap = target.id === "overlay";
  const moves: Record<string, [number, number]> = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
  if (onMap && event.key in moves) { event.preventDefault(); built.pan(...moves[event.key]); return; }
  if (/^[1-9]$/.test(event.key)) {
    const word = store.words[Number(event.key) - 1];
    if (word) void setLabel(store.targets(), word);
    return;
  }
  const acts: Record<string, () => void> = {
    "/": () => byId("search").focus(), "?": showHelp, "+": () => built.zoom(1.5), "=": () => built.zoom(1.5), "-": () => built.zoom(1 / 1.5), "0": () => built.fit(),
    f: () => built.fit(store.selection), l: () => built.setTool("lasso"), b: () => built.setTool("box"), h: () => built.setTool("hand"), m: () => void similar(), u: () => void undo(),
    n: () => byId("label-word").focus(),
  };
  const act = acts[event.key];
  if (act) { event.preventDefault(); act(); }
}

export function showHelp(): void {
  const rows: [string, string][] = [
    ["drag, wheel, pinch", "move and zoom the map"], ["Shift-drag, B", "select with a box"], ["Alt-drag, L", "select with a lasso"], ["click, Shift-click", "select one, add one"],
    ["double click, Enter", "look at one image"], ["M", "more like these"], ["1 to 9", "give one of the first nine labels"], ["N", "type a label"], ["U, Ctrl-Z", "undo"],
    ["/", "search"], ["0, F", "show everything, show the selection"], ["arrows, Space", "in the grid: go and mark"], ["Esc", "clear the selection"],
  ];
  const dialog = byId<HTMLDialogElement>("help");
  fill(dialog, h("h2", {}, "Keys"), h("dl", {}, ...rows.flatMap(([keys, text]) => [h("dt", {}, keys), h("dd", {}, text)])),
    h("p", { class: "quiet" }, "Drop or paste a picture anywhere to find images like it. While the map moves, a fair sample of the points is drawn if all would be too slow; at rest, all are. Nothing leaves this computer."),
    h("div", { class: "row" }, h("span", { class: "gap" }), h("button", { type: "button", autofocus: true, onclick: () => dialog.close() }, "Close")));
  dialog.showModal();
}
