// What the page knows, and who wants to hear when it changes.

import { Turns } from "./turns";

export interface ColumnName { id: string; title: string; kind: "category" | "number"; about: string }
export interface Column extends ColumnName { values: Uint16Array | Float32Array; categories: string[] }
export interface SpaceInfo { title: string; layouts: { id: string; note: string }[]; encoder: boolean }
export interface Job { id: number; kind: string; title: string; state: string; done: number; total: number; said: string }
export interface Run { name: string; status: string; reason?: string; method?: string; epoch?: number; epochs?: number; tau_alpha?: number | string; tau_beta?: number | string; [key: string]: unknown }
export interface Item { id: number; name: string; part: string | null; given: string | null; label: string | null; tags: string[]; prediction?: string; confidence?: number }
export type Entry = [string | null, string[]];

export const NO_CODE = 0xffff;

type Topic = "selection" | "marks" | "column" | "columns" | "labels" | "space" | "jobs" | "runs" | "predictions" | "items";

class Store {
  count = 0;
  pictures = true;
  title = "";
  columns: ColumnName[] = [];
  column: Column | null = null;
  wanted = ""; // id of the column that was last asked for: `column`, once its values are here
  spaces: SpaceInfo[] = [];
  current = 0;
  layout = "components";
  placed = ""; // encoder and layout that the points on the map are of: `current` and `layout`, once they are here
  entries = new Map<number, Entry>();
  labelVersion = 0;
  words: string[] = [];
  tags: string[] = [];
  canUndo = false;
  predictions: { version: number; seconds: number | null; labeled?: number; classes?: number } = { version: 0, seconds: null };
  jobs = new Map<number, Job>();
  runs: Run[] = [];
  methods: string[] = [];
  ways: Record<string, string> = {};
  files = { labels: "", exports: "" };

  selection: Int32Array = new Int32Array(0); // in the order of the grid
  selected: Uint8Array = new Uint8Array(0); // by image
  why = "";
  marks = new Set<number>(); // of the selection, those that actions are for
  readonly selecting = new Turns(); // searches take a turn: what is selected meanwhile is not replaced by a late answer

  private listeners = new Map<Topic, (() => void)[]>();

  on(topics: Topic[], act: () => void): void {
    for (const topic of topics) this.listeners.set(topic, [...(this.listeners.get(topic) ?? []), act]);
  }

  tell(...topics: Topic[]): void {
    const acts = new Set(topics.flatMap(topic => this.listeners.get(topic) ?? []));
    for (const act of acts) act();
  }

  select(ids: ArrayLike<number>, why: string): void {
    this.selecting.take();
    this.selection = Int32Array.from(ids);
    this.selected = new Uint8Array(this.count);
    for (const id of this.selection) this.selected[id] = 1;
    this.marks.clear();
    this.why = why;
    this.tell("selection", "marks");
  }

  clear(): void { this.select([], ""); }

  // What actions are for: the marked images, else all selected ones.
  targets(): number[] { return this.marks.size ? [...this.marks] : Array.from(this.selection); }

  toggleMark(id: number): void {
    if (!this.marks.delete(id)) this.marks.add(id);
    this.tell("marks");
  }
}

export const store = new Store();
