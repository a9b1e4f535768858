// Names, labels and predictions of images, asked for a few at a time.

import { post } from "./api";
import { Item, store } from "./store";

const MOST = 200;

class Items {
  private known = new Map<number, Item>();
  private wanted = new Set<number>();
  private planned = false;
  private silent = 0; // until when nothing is asked, after a request that failed

  get(id: number): Item | undefined {
    const found = this.known.get(id);
    if (!found && !this.wanted.has(id) && performance.now() > this.silent) {
      this.wanted.add(id);
      if (!this.planned) {
        this.planned = true;
        setTimeout(() => void this.ask(), 30);
      }
    }
    return found;
  }

  async need(id: number): Promise<Item | undefined> {
    if (!this.known.has(id)) await this.load([id]);
    return this.known.get(id);
  }

  // Labels or predictions have changed.
  stale(ids?: Iterable<number>): void {
    if (ids) for (const id of ids) this.known.delete(id);
    else this.known.clear();
  }

  private async ask(): Promise<void> {
    this.planned = false;
    const ids = [...this.wanted];
    for (let start = 0; start < ids.length; start += MOST) await this.load(ids.slice(start, start + MOST));
    if (performance.now() > this.silent) store.tell("items");
  }

  private async load(ids: number[]): Promise<void> {
    try {
      const { items } = await post<{ items: Item[] }>("/api/items", { ids });
      for (const item of items) this.known.set(item.id, item);
    } catch {
      this.silent = performance.now() + 3000;
    }
    ids.forEach(id => this.wanted.delete(id));
  }
}

export const items = new Items();

// What an image is called by: the label given here, else its class.
export const labelOf = (id: number, item: Item | undefined): string | null => store.entries.get(id)?.[0] ?? item?.given ?? null;
