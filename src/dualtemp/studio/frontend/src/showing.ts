// What is on show: the map of an encoder, and the column that colors it. News and answers come in any order; the newest wish counts.

import { attempt, Frame, getFrame } from "./api";
import { byId, fill, h } from "./dom";
import { drawLegend } from "./legend";
import { PointMap } from "./map";
import { store } from "./store";
import { Turns } from "./turns";

let map: PointMap | null = null;
const places = new Turns(), columns = new Turns();

const bestLayout = (): string => store.spaces[store.current].layouts.some(each => each.id === "neighbors") ? "neighbors" : "components";

const offer = (): string => `${store.current} ${bestLayout()}`;
let offered = "";

// The map, with its points where the best layout of the encoder on show has them.
export async function makeMap(): Promise<PointMap> {
  store.layout = bestLayout();
  offered = offer();
  const places = await getPlaces();
  map = new PointMap(store.count, show(places));
  return map;
}

// Go to the encoder that is current and its best map, if either is new; a map that the person has chosen stays otherwise.
export function followSpaces(): void {
  if (offer() === offered) return drawSelects();
  offered = offer();
  store.layout = bestLayout();
  void moveMap();
}

interface Places extends Frame { of: string }

async function getPlaces(): Promise<Places> {
  const { current, layout } = store;
  return { ...await getFrame(`/api/points?space=${current}&layout=${layout}`), of: `${current} ${layout}` };
}

// Say what they are, and return the places of all points.
function show(frame: Places): Float32Array {
  store.placed = frame.of;
  const sampled = store.count > 60_000 ? " While it moves, a fair sample of the points is drawn." : "";
  byId("map-note").textContent = byId("map-note").title = frame.head.note + sampled;
  return new Float32Array(frame.data, frame.at, 2 * frame.head.count);
}

export async function moveMap(): Promise<void> {
  const isNewest = places.take(), frame = await attempt(getPlaces);
  if (!isNewest()) return;
  if (frame) map?.morph(show(frame));
  drawSelects();
}

export async function loadColumn(id: string): Promise<void> {
  const isNewest = columns.take(), known = store.columns.find(each => each.id === id);
  store.wanted = known?.id ?? "";
  if (!known) store.column = null;
  else {
    const frame = await attempt(() => getFrame(`/api/columns/${encodeURIComponent(known.id)}`));
    if (!isNewest()) return;
    if (!frame) {
      store.wanted = store.column?.id ?? "";
      return drawSelects();
    }
    const kind = frame.head.kind as "category" | "number";
    const values = kind === "category" ? new Uint16Array(frame.data, frame.at, store.count) : new Float32Array(frame.data, frame.at, store.count);
    store.column = { ...known, kind, values, categories: frame.head.categories, title: frame.head.title };
  }
  byId<HTMLSelectElement>("color").value = store.wanted;
  drawLegend();
  drawOrder();
  store.tell("column");
}

// Columns that are computed when somebody first wants them.
export const COMPUTED: Record<string, { title: string; address: string }> = {
  cluster: { title: "cluster", address: "/api/cluster" }, W: { title: "anchor weight W", address: "/api/weigh" },
};

export function drawSelects(): void {
  const color = byId<HTMLSelectElement>("color"), layout = byId<HTMLSelectElement>("layout"), space = byId<HTMLSelectElement>("space");
  fill(color, h("option", { value: "" }, "one color"), ...store.columns.map(each => h("option", { value: each.id, title: each.about }, each.title)),
    ...Object.entries(COMPUTED).filter(([id]) => !store.columns.some(each => each.id === id)).map(([id, { title }]) => h("option", { value: id }, `${title} (compute)`)));
  color.value = store.wanted;
  const names: Record<string, string> = { components: "principal components", neighbors: "neighbors" };
  fill(layout, ...store.spaces[store.current].layouts.map(each => h("option", { value: each.id }, names[each.id] ?? each.id)));
  layout.value = store.layout;
  fill(space, ...store.spaces.map((each, n) => h("option", { value: n }, each.title)));
  space.value = String(store.current);
}

function drawOrder(): void {
  const order = byId<HTMLSelectElement>("order"), before = order.value || "found";
  fill(order, h("option", { value: "found" }, "as found"), store.column && h("option", { value: "up" }, `${store.column.title}, rising`), store.column && h("option", { value: "down" }, `${store.column.title}, falling`));
  order.value = [...order.options].some(each => each.value === before) ? before : "found";
}
