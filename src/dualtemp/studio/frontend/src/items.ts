// Names, labels and predictions of images, asked for a few at a time.

import { post } from "./api";
import { Item, store } from "./store";

const MOST = 200, TRIES = 3;

class Items {
  private known = new Map<number, Item>();
  private wanted = new Set<number>();
  private asking = new Set<number>();
  private planned = false;
  private silent = 0; // until when nothing is asked, after a request that failed
  private time = 0; // how often something became stale
  private staleSince = new Map<number, number>(); // by image, of those that are being asked for
  private allStaleSince = 0;

  get(id: number): Item | undefined {
    const found = this.known.get(id);
    if (!found && !this.wanted.has(id) && !this.asking.has(id) && performance.now() > this.silent) {
      this.wanted.add(id);
      if (!this.planned) {
        this.planned = true;
        setTimeout(() => void this.ask(), 30);
      }
    }
    return found;
  }

  async need(id: number): Promise<Item | undefined> {
    for (let tries = 0; tries < TRIES && !this.known.has(id) && performance.now() > this.silent; tries++) await this.load([id]);
    return this.known.get(id);
  }

  // Labels or predictions have changed: what is known, and what is on its way, is of before.
  stale(ids?: Iterable<number>): void {
    this.time++;
    if (!ids) {
      this.allStaleSince = this.time;
      this.known.clear();
    } else for (const id of ids) {
      this.known.delete(id);
      if (this.asking.has(id)) this.staleSince.set(id, this.time);
    }
  }

  private async ask(): Promise<void> {
    this.planned = false;
    const ids = [...this.wanted];
    this.wanted.clear();
    ids.forEach(id => this.asking.add(id));
    for (let start = 0; start < ids.length; start += MOST) await this.load(ids.slice(start, start + MOST));
    if (performance.now() > this.silent) store.tell("items");
  }

  private async load(ids: number[]): Promise<void> {
    const asked = this.time;
    ids.forEach(id => this.asking.add(id));
    try {
      const { items } = await post<{ items: Item[] }>("/api/items", { ids });
      for (const item of items) if (Math.max(this.allStaleSince, this.staleSince.get(item.id) ?? 0) <= asked) this.known.set(item.id, item);
    } catch {
      this.silent = performance.now() + 3000;
    }
    ids.forEach(id => this.asking.delete(id));
    if (!this.asking.size) this.staleSince.clear();
  }
}

export const items = new Items();

// What an image is called by: the label given here, else its class.
export const labelOf = (id: number, item: Item | undefined): string | null => store.entries.get(id)?.[0] ?? item?.given ?? null;
