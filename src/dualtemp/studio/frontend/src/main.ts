// The page: everything put together.

import { attempt, getFrame, getJson, listen, post, postFile } from "./api";
import { byId, debounce, fill, h, many, say } from "./dom";
import { Grid } from "./grid";
import { items, labelOf } from "./items";
import { labelPanel, setLabel, undo } from "./label_panel";
import { drawLegend, showGradient } from "./legend";
import { PointMap, Tool } from "./map";
import { picture, settlePanel } from "./settle_panel";
import { ColumnName, Entry, Job, Run, SpaceInfo, store } from "./store";
import { temperaturePanel } from "./temperature_panel";
import { thumbs } from "./thumbs";
import { trainPanel } from "./train_panel";
import { listenInViewer, openViewer } from "./viewer";

interface Labels { version: number; entries: Record<string, Entry>; words: string[]; tags: string[]; can_undo: boolean }
interface State {
  title: string; ready: boolean; problem: string; notes: string[]; jobs: Job[]; count: number; pictures: boolean; spaces: SpaceInfo[];
  current: number; columns: ColumnName[]; labels: Labels; predictions: typeof store.predictions; runs: Run[]; methods: string[]; ways: Record<string, string>;
  files: typeof store.files;
}

let map: PointMap | null = null;
let grid: Grid | null = null;

let loading = false, outdated = false;

// Load everything. Whoever asks, or brings news, while it loads has it loaded once more: an answer on its way may be older than the news.
async function begin(): Promise<void> {
  outdated = true;
  if (loading) return;
  loading = true;
  try {
    while (outdated) { outdated = false; await load(); }
  } finally {
    loading = false;
  }
}

async function load(): Promise<void> {
  const state = await attempt(() => getJson<State>("/api/state"));
  if (!state) return;
  store.title = state.title;
  byId("title").textContent = state.title;
  document.title = `${state.title} \u2014 dualtemp studio`;
  for (const job of state.jobs) store.jobs.set(job.id, job);
  if (!state.ready) {
    if (state.problem) { byId("opening-title").textContent = "It cannot be opened"; byId("opening-text").textContent = state.problem; byId("opening-bar").hidden = true; }
    else { byId("opening-title").textContent = `Opening ${state.title}`; for (const job of state.jobs) showOpening(job); }
    return;
  }
  Object.assign(store, { count: state.count, pictures: state.pictures, spaces: state.spaces, current: state.current, columns: state.columns, predictions: state.predictions, runs: state.runs, methods: state.methods, ways: state.ways, files: state.files });
  thumbs.enabled = state.pictures;
  takeLabels(state.labels);
  byId("count").textContent = many(state.count, "image");
  if (!map) await build();
  else {
    items.stale();
    followSpaces();
    await loadColumn(store.column?.id);
    store.tell("labels", "predictions", "runs", "columns", "jobs");
  }
  for (const note of state.notes.slice(-1)) say(note);
}

async function build(): Promise<void> {
  store.layout = bestLayout();
  offered = offer();
  const places = await loadPlaces();
  store.selected = new Uint8Array(store.count);
  map = new PointMap(store.count, places);
  Object.assign(window, { studio: { store, map } }); // for the benchmark and for the curious
  grid = new Grid();
  grid.colorOf = id => map!.colorOf(id);
  grid.onOpen = id => openViewer(id, grid!.ids);
  map.onOpen = id => openViewer(id, grid!.ids.length ? grid!.ids : Int32Array.of(id));
  map.onHover = hover;
  map.onTool = tool => document.querySelectorAll<HTMLElement>("[data-tool]").forEach(each => each.setAttribute("aria-pressed", String(each.dataset.tool === tool)));
  map.onEmphasis = showGradient;
  buildTabs(map);
  drawSelects();
  listenToPage(map);
  grid.show();
  byId("opening").classList.add("gone");
  document.body.classList.add("ready");
  const first = ["label", "class"].find(id => store.columns.some(each => each.id === id && each.kind === "category"));
  await loadColumn(first);
  store.tell("labels", "predictions", "runs", "jobs");
}

const bestLayout = (): string => store.spaces[store.current].layouts.some(each => each.id === "neighbors") ? "neighbors" : "components";

const offer = (): string => `${store.current} ${bestLayout()}`;
let offered = "";

// Go to the encoder that is current and its best map, if either is new; a map that the person has chosen stays otherwise.
function followSpaces(): void {
  if (offer() === offered) return drawSelects();
  offered = offer();
  store.layout = bestLayout();
  void moveMap();
}

async function loadPlaces(): Promise<Float32Array> {
  const frame = await getFrame(`/api/points?space=${store.current}&layout=${store.layout}`);
  const sampled = store.count > 60_000 ? " While it moves, a fair sample of the points is drawn." : "";
  byId("map-note").textContent = byId("map-note").title = frame.head.note + sampled;
  return new Float32Array(frame.data, frame.at, 2 * frame.head.count);
}

async function moveMap(): Promise<void> {
  const places = await attempt(loadPlaces);
  if (places) map?.morph(places);
  drawSelects();
}

async function loadColumn(id: string | undefined): Promise<void> {
  const known = store.columns.find(each => each.id === id);
  if (!known) store.column = null;
  else {
    const frame = await attempt(() => getFrame(`/api/columns/${encodeURIComponent(known.id)}`));
    if (!frame) return;
    const kind = frame.head.kind as "category" | "number";
    const values = kind === "category" ? new Uint16Array(frame.data, frame.at, store.count) : new Float32Array(frame.data, frame.at, store.count);
    store.column = { ...known, kind, values, categories: frame.head.categories, title: frame.head.title };
  }
  byId<HTMLSelectElement>("color").value = known?.id ?? "";
  drawLegend();
  drawOrder();
  store.tell("column");
}

// Columns that are computed when somebody first wants them.
const COMPUTED: Record<string, { title: string; address: string }> = {
  cluster: { title: "cluster", address: "/api/cluster" }, W: { title: "anchor weight W", address: "/api/weigh" },
};

function drawSelects(): void {
  const color = byId<HTMLSelectElement>("color"), layout = byId<HTMLSelectElement>("layout"), space = byId<HTMLSelectElement>("space");
  fill(color, h("option", { value: "" }, "one color"), ...store.columns.map(each => h("option", { value: each.id, title: each.about }, each.title)),
    ...Object.entries(COMPUTED).filter(([id]) => !store.columns.some(each => each.id === id)).map(([id, { title }]) => h("option", { value: id }, `${title} (compute)`)));
  color.value = store.column?.id ?? "";
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

function takeLabels(labels: Labels): void {
  store.entries = new Map(Object.entries(labels.entries).map(([id, entry]) => [Number(id), entry]));
  store.labelVersion = labels.version;
  store.words = labels.words;
  store.tags = labels.tags;
  store.canUndo = labels.can_undo;
}

function showOpening(job: Job): void {
  if (job.kind !== "open") return;
  const bar = byId<HTMLProgressElement>("opening-bar");
  byId("opening-text").textContent = job.state === "failed" ? job.said : job.total ? `${job.done.toLocaleString("en")} of ${job.total.toLocaleString("en")} images are seen by the encoder; they are kept for the next time.` : "Reading\u2026";
  if (job.state === "failed") { byId("opening-title").textContent = "It cannot be opened"; bar.hidden = true; }
  else if (job.total) { bar.max = job.total; bar.value = job.done; }
}

function drawJobs(): void {
  const running = [...store.jobs.values()].filter(job => ["waiting", "running"].includes(job.state));
  fill(byId("jobs"), ...running.map(job => h("div", { class: "job" },
    h("span", {}, job.title), h("progress", job.total ? { max: job.total, value: job.done, "aria-label": job.title } : { "aria-label": job.title }),
    h("button", { type: "button", "aria-label": `Stop ${job.title}`, onclick: () => void attempt(() => post("/api/jobs/stop", { number: job.id })) }, "Stop"))));
}

const hover = debounce(20, (id: number | null, x: number, y: number) => {
  const tip = byId("tip");
  if (id === null) { tip.hidden = true; return; }
  const draw = (): void => {
    const item = items.get(id), label = labelOf(id, item);
    fill(tip, store.pictures && picture(id, 96), h("b", {}, label ?? (item?.prediction ? `${item.prediction}?` : "")), h("span", {}, item?.name ?? ""));
  };
  draw();
  void items.need(id).then(draw);
  tip.hidden = false;
  const pane = byId("map-pane").getBoundingClientRect();
  tip.style.left = `${Math.min(x + 14, pane.width - 170)}px`;
  tip.style.top = `${y > pane.height - 190 ? y - 160 : y + 14}px`;
});

function buildTabs(built: PointMap): void {
  const panels: [string, string, HTMLElement][] = [
    ["label", "Label", labelPanel()], ["settle", "Settle", settlePanel()], ["train", "Train", trainPanel()], ["temperatures", "Temperatures", temperaturePanel(built)],
  ];
  const tabs = panels.map(([id, title], n) => h("button", { type: "button", role: "tab", id: `tab-${id}`, "aria-controls": `panel-${id}`, onclick: () => choose(n) }, title));
  const bodies = panels.map(([id, , body]) => h("div", { role: "tabpanel", id: `panel-${id}`, "aria-labelledby": `tab-${id}` }, body));
  const choose = (chosen: number, focus = false): void => {
    tabs.forEach((tab, n) => { tab.setAttribute("aria-selected", String(n === chosen)); tab.tabIndex = n === chosen ? 0 : -1; });
    bodies.forEach((body, n) => { body.hidden = n !== chosen; });
    if (focus) tabs[chosen].focus();
  };
  byId("tabs").append(...tabs);
  byId("tabs").addEventListener("keydown", event => {
    const at = tabs.findIndex(tab => tab.getAttribute("aria-selected") === "true");
    if (event.key === "ArrowRight") choose((at + 1) % tabs.length, true);
    if (event.key === "ArrowLeft") choose((at + tabs.length - 1) % tabs.length, true);
  });
  byId("panels").append(...bodies);
  choose(0);
}

async function similar(): Promise<void> {
  const ids = store.targets();
  if (!ids.length) return say("Select images first.");
  const found = await attempt(() => post<{ ids: number[] }>("/api/similar", { ids, most: Math.max(60, ids.length + 40) }));
  if (found) store.select(found.ids, ids.length === 1 ? "like this one" : `like these ${ids.length}`);
}

async function drop(file: Blob): Promise<void> {
  if (file.size > 32 << 20) return say("This file is larger than 32 MB.", true);
  say("Looking for images like it\u2026");
  const found = await attempt(() => postFile<{ ids: number[]; cosines: number[] }>("/api/drop", file));
  if (found) {
    store.select(found.ids.slice(0, 60), "like the dropped picture");
    say(`The nearest has a cosine of ${found.cosines[0].toFixed(3)}.`);
  }
}

async function search(text: string): Promise<void> {
  if (!text.trim()) return store.clear();
  const frame = await attempt(() => getFrame(`/api/search?q=${encodeURIComponent(text)}`));
  if (!frame) return;
  const ids = new Int32Array(frame.data, frame.at, frame.head.count);
  if (ids.length) store.select(ids, `with \u201c${text.trim()}\u201d`);
  else say(`Nothing is called \u201c${text.trim()}\u201d.`);
}

function listenToPage(built: PointMap): void {
  byId("color").addEventListener("change", event => {
    const chosen = (event.target as HTMLSelectElement).value, compute = COMPUTED[chosen];
    if (!compute || store.columns.some(each => each.id === chosen)) return void loadColumn(chosen);
    byId<HTMLSelectElement>("color").value = store.column?.id ?? "";
    void attempt(() => post(compute.address, {}));
  });
  byId("layout").addEventListener("change", event => { store.layout = (event.target as HTMLSelectElement).value; void moveMap(); });
  byId("space").addEventListener("change", event => void attempt(() => post("/api/space", { number: Number((event.target as HTMLSelectElement).value) })));
  byId("search-form").addEventListener("submit", event => { event.preventDefault(); void search(byId<HTMLInputElement>("search").value); });
  byId("search").addEventListener("input", debounce(220, () => void search(byId<HTMLInputElement>("search").value)));
  document.querySelectorAll<HTMLElement>("[data-tool]").forEach(each => each.addEventListener("click", () => built.setTool(each.dataset.tool as Tool)));
  byId("zoom-in").addEventListener("click", () => built.zoom(1.5));
  byId("zoom-out").addEventListener("click", () => built.zoom(1 / 1.5));
  byId("fit").addEventListener("click", () => built.fit(store.selection));
  byId("similar").addEventListener("click", () => void similar());
  byId("clear").addEventListener("click", () => store.clear());
  byId("undo").addEventListener("click", () => void undo());
  byId("help-button").addEventListener("click", showHelp);
  store.on(["selection", "marks"], () => {
    for (const id of ["similar", "clear"]) byId<HTMLButtonElement>(id).disabled = !store.selection.length;
    byId("similar").textContent = store.marks.size > 1 ? `More like these ${store.marks.size}` : store.marks.size === 1 ? "More like this" : "More like these";
  });
  store.on(["jobs"], drawJobs);
  listenInViewer();
  document.addEventListener("keydown", event => key(event, built));
  document.addEventListener("dragover", event => { event.preventDefault(); document.body.classList.add("dropping"); });
  document.addEventListener("dragleave", event => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
  document.addEventListener("drop", event => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    const file = event.dataTransfer?.files[0];
    if (file) void drop(file);
  });
  document.addEventListener("paste", event => {
    const file = event.clipboardData?.files[0];
    if (file) void drop(file);
  });
}

function key(event: KeyboardEvent, built: PointMap): void {
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

function showHelp(): void {
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

// What has begun to load may be older than these news.
function heard(kind: string, content: { job?: Job }): void {
  if (kind !== "job" || !["waiting", "running"].includes(content.job!.state)) outdated ||= loading;
}

listen(heard, {
  job: ({ job }: { job: Job }) => {
    store.jobs.set(job.id, job);
    showOpening(job);
    if (job.state === "failed") say(`${job.title}: ${job.said}`, true);
    else if (job.state === "done" && ["export", "see", "duplicates", "weigh", "doubts", "cluster"].includes(job.kind)) say(`${job.title}: ${job.said}`);
    if (map) store.tell("jobs");
  },
  ready: () => void begin(),
  labels: ({ version, entries, whole }: { version: number; entries: Record<string, Entry>; whole: boolean }) => {
    if (whole || version !== store.labelVersion + 1) return void begin();
    store.labelVersion = version;
    for (const [id, entry] of Object.entries(entries)) {
      if (entry[0] === null && !entry[1].length) store.entries.delete(Number(id)); else store.entries.set(Number(id), entry);
      for (const tag of entry[1]) if (!store.tags.includes(tag)) store.tags = [...store.tags, tag].sort();
      if (entry[0] !== null && !store.words.includes(entry[0])) store.words = [...store.words, entry[0]].sort();
    }
    store.canUndo = true;
    items.stale(Object.keys(entries).map(Number));
    store.tell("labels");
    if (store.column?.id === "label") void loadColumn("label");
  },
  predictions: ({ columns, ...about }: { columns: ColumnName[] } & typeof store.predictions) => {
    store.columns = columns;
    store.predictions = about;
    items.stale();
    if (!map) return;
    drawSelects();
    if (["prediction", "uncertainty"].includes(store.column?.id ?? "")) void loadColumn(store.column!.id);
    store.tell("predictions", "columns");
  },
  columns: ({ columns, changed }: { columns: ColumnName[]; changed: string }) => {
    store.columns = columns;
    if (!map) return;
    drawSelects();
    void loadColumn(changed);
  },
  space: ({ current, spaces }: { current: number; spaces: SpaceInfo[] }) => {
    store.spaces = spaces;
    store.current = current;
    if (map) followSpaces();
  },
  runs: ({ runs }: { runs: Run[] }) => { store.runs = runs; if (map) store.tell("runs"); },
}, () => void begin());

if (location.search) history.replaceState(null, "", "/"); // the token is in the cookie now
