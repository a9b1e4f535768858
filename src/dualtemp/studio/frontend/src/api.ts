// What the server is asked, and its news.

import { say } from "./dom";

export class Refused extends Error {}

async function checked(response: Response): Promise<Response> {
  if (response.ok) return response;
  let text = `the studio answered ${response.status}`;
  try { text = (await response.json()).error ?? text; } catch { /* not JSON */ }
  throw new Refused(text);
}

export const getJson = async <T>(address: string): Promise<T> => (await checked(await fetch(address))).json();

export async function post<T>(address: string, body: unknown): Promise<T> {
  const response = await fetch(address, { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } });
  return (await checked(response)).json();
}

export async function postFile<T>(address: string, file: Blob): Promise<T> {
  return (await checked(await fetch(address, { method: "POST", body: file, headers: { "content-type": "application/octet-stream" } }))).json();
}

export interface Frame { head: Record<string, any>; data: ArrayBuffer; at: number }

// A JSON head and arrays, as frames.py packs them.
export async function getFrame(address: string): Promise<Frame> {
  const data = await (await checked(await fetch(address))).arrayBuffer();
  const length = new DataView(data).getUint32(0, true);
  return { head: JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, length))), data, at: 4 + length };
}

// Do something that the server may refuse; the reason is shown, not thrown.
export async function attempt<T>(act: () => Promise<T>): Promise<T | undefined> {
  try {
    return await act();
  } catch (error) {
    say(error instanceof Refused ? error.message : "The studio does not answer: is it still running?", true);
    return undefined;
  }
}

// `begin` is called once the server says hello, so that nothing falls between what it loads and the news; and again after a break.
export function listen(heard: (kind: string, content: any) => void, handlers: Record<string, (content: any) => void>, begin: () => void): EventSource {
  const source = new EventSource("/api/events");
  source.addEventListener("hello", () => { document.body.classList.remove("lost"); begin(); });
  source.addEventListener("error", () => document.body.classList.add("lost"));
  source.addEventListener("lost", begin);
  for (const [kind, handle] of Object.entries(handlers)) {
    source.addEventListener(kind, event => {
      const content = JSON.parse((event as MessageEvent).data);
      heard(kind, content);
      handle(content);
    });
  }
  return source;
}
