// One image, large, with everything that is known of it.

import { byId, fill, h } from "./dom";
import { items, labelOf } from "./items";
import { store } from "./store";
import { Turns } from "./turns";

let shown: Int32Array = new Int32Array(0);
let place = 0;
const turns = new Turns();

export function openViewer(id: number, among: Int32Array): void {
  shown = among;
  place = Math.max(0, among.indexOf(id));
  const dialog = byId<HTMLDialogElement>("viewer");
  void draw();
  if (!dialog.open) dialog.showModal();
}

async function draw(): Promise<void> {
  const isNewest = turns.take(), dialog = byId<HTMLDialogElement>("viewer"), id = shown[place], item = await items.need(id);
  if (!isNewest()) return;
  const own = store.entries.get(id);
  const facts: [string, string | null | undefined][] = [
    ["label", labelOf(id, item)],
    ["class of its folder", own?.[0] ? item?.given : null],
    ["predicted", item?.prediction ? `${item.prediction} (${Math.round(100 * (item.confidence ?? 0))} %)` : null],
    ["tags", own?.[1].join(", ")],
    ["part", item?.part],
    ["number", String(id)],
  ];
  const picture = store.pictures ? h("img", { src: `/api/images/${id}`, alt: item?.name ?? `image ${id}` }) : h("p", { class: "quiet" }, "It is not known where this image is.");
  const focused = dialog.contains(document.activeElement) ? document.activeElement?.id : "";
  fill(dialog,
    h("figure", {}, picture, h("figcaption", {}, item?.name ?? "")),
    h("dl", {}, ...facts.filter(([, value]) => value).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value!)])),
    h("div", { class: "row" },
      h("button", { type: "button", id: "previous", onclick: () => step(-1), "aria-label": "Previous image" }, "\u2190"),
      h("button", { type: "button", id: "next", onclick: () => step(1), "aria-label": "Next image" }, "\u2192"),
      h("span", { class: "gap" }),
      h("button", { type: "button", id: "close", onclick: () => dialog.close() }, "Close")));
  // What had the focus is gone: without it, the keys would reach nobody.
  if (dialog.open) byId(["previous", "next"].find(each => each === focused) ?? "close").focus();
}

function step(by: number): void {
  place = (place + by + shown.length) % shown.length;
  void draw();
}

export function listenInViewer(): void {
  const dialog = byId<HTMLDialogElement>("viewer");
  dialog.addEventListener("keydown", event => {
    if (event.key === "ArrowRight") step(1);
    if (event.key === "ArrowLeft") step(-1);
  });
  dialog.addEventListener("click", event => { if (event.target === dialog) dialog.close(); });
}
