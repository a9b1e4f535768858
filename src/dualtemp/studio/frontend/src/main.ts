// The page: everything put together.

import { attempt, getJson, listen, post } from "./api";
import { byId, debounce, fill, h, many, say } from "./dom";
import { drop, search, similar } from "./finding";
import { Grid } from "./grid";
import { items, labelOf } from "./items";
import { key, showHelp } from "./keys";
import { labelPanel, undo } from "./label_panel";
import { showGradient } from "./legend";
import { PointMap, Tool } from "./map";
import { picture, settlePanel } from "./settle_panel";
import { COMPUTED, drawSelects, followSpaces, loadColumn, makeMap, moveMap } from "./showing";
import { ColumnName, Entry, Job, Run, SpaceInfo, store } from "./store";
import { temperaturePanel } from "./temperature_panel";
import { thumbs } from "./thumbs";
import { trainPanel } from "./train_panel";
import { Turns } from "./turns";
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
  } catch (error) { // such as a browser that cannot draw the map
    byId("opening").classList.remove("gone");
    byId("opening-text").textContent = error instanceof Error ? error.message : String(error);
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
    await loadColumn(store.wanted);
    store.tell("labels", "predictions", "runs", "columns", "jobs");
  }
  for (const note of state.notes.slice(-1)) say(note);
}

function showGrid(): void {
  grid ??= new Grid();
  grid.colorOf = id => map?.colorOf(id) ?? "";
  grid.onOpen = id => openViewer(id, grid!.ids);
  grid.show();
  byId("opening").classList.add("gone");
}

async function build(): Promise<void> {
  store.selected = new Uint8Array(store.count);
  showGrid(); // first: pictures are on their way while the map is made
  map = await makeMap();
  Object.assign(window, { studio: { store, map, items, grid } }); // for the benchmark and for the curious
  map.onOpen = id => openViewer(id, grid!.ids.length ? grid!.ids : Int32Array.of(id));
  map.onHover = hover;
  map.onTool = tool => document.querySelectorAll<HTMLElement>("[data-tool]").forEach(each => each.setAttribute("aria-pressed", String(each.dataset.tool === tool)));
  map.onEmphasis = showGradient;
  buildTabs(map);
  drawSelects();
  listenToPage(map);
  document.body.classList.add("ready");
  const first = ["label", "class"].find(id => store.columns.some(each => each.id === id && each.kind === "category"));
  await loadColumn(first ?? "");
  store.tell("labels", "predictions", "runs", "jobs");
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

const hovers = new Turns();
const hover = debounce(20, (id: number | null, x: number, y: number) => {
  const tip = byId("tip"), isNewest = hovers.take();
  if (id === null) { tip.hidden = true; return; }
  const draw = (): void => {
    const item = items.get(id), label = labelOf(id, item);
    fill(tip, store.pictures && picture(id, 96), h("b", {}, label ?? (item?.prediction ? `${item.prediction}?` : "")), h("span", {}, item?.name ?? ""));
  };
  draw();
  void items.need(id).then(() => { if (isNewest()) draw(); });
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

function listenToPage(built: PointMap): void {
  byId("color").addEventListener("change", event => {
    const chosen = (event.target as HTMLSelectElement).value, compute = COMPUTED[chosen];
    if (!compute || store.columns.some(each => each.id === chosen)) return void loadColumn(chosen);
    byId<HTMLSelectElement>("color").value = store.wanted;
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
    for (const id of ["similar", "clear"]) byId<HTMLButtonElement>(id).disabled = !store.targets().length;
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
  labels: ({ version, entries, whole, can_undo }: { version: number; entries: Record<string, Entry>; whole: boolean; can_undo: boolean }) => {
    if (whole || version !== store.labelVersion + 1) return void begin();
    store.labelVersion = version;
    for (const [id, entry] of Object.entries(entries)) {
      if (entry[0] === null && !entry[1].length) store.entries.delete(Number(id)); else store.entries.set(Number(id), entry);
      for (const tag of entry[1]) if (!store.tags.includes(tag)) store.tags = [...store.tags, tag].sort();
      if (entry[0] !== null && !store.words.includes(entry[0])) store.words = [...store.words, entry[0]].sort();
    }
    store.canUndo = can_undo;
    items.stale(Object.keys(entries).map(Number));
    store.tell("labels");
    if (store.wanted === "label") void loadColumn("label");
  },
  predictions: ({ columns, ...about }: { columns: ColumnName[] } & typeof store.predictions) => {
    store.columns = columns;
    store.predictions = about;
    items.stale();
    if (!map) return;
    drawSelects();
    if (["prediction", "uncertainty"].includes(store.wanted)) void loadColumn(store.wanted);
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
