// Elements from code. Text is always text: nothing that comes from the server is ever parsed as HTML.

type Child = Node | string | number | null | undefined | false;
type Props = { [key: string]: unknown };

export function h<K extends keyof HTMLElementTagNameMap>(tag: K, props: Props = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value as EventListener);
    else if (key === "class") element.className = String(value);
    else if (typeof value === "boolean") element.toggleAttribute(key, value);
    else element.setAttribute(key, String(value));
  }
  element.append(...children.filter(child => child !== null && child !== undefined && child !== false).map(child => typeof child === "number" ? String(child) : child as Node | string));
  return element;
}

export function svg(tag: string, props: Props = {}, ...children: (Node | string)[]): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(props)) if (value !== undefined) element.setAttribute(key, String(value));
  element.append(...children);
  return element;
}

export const byId = <T extends HTMLElement = HTMLElement>(id: string): T => document.getElementById(id) as T;

export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren(...children.filter(child => child !== null && child !== undefined && child !== false).map(child => typeof child === "number" ? String(child) : child as Node | string));
}

let hiding = 0;
export function say(text: string, isProblem = false): void {
  const toast = byId("toast");
  toast.textContent = text;
  toast.className = isProblem ? "on problem" : "on";
  clearTimeout(hiding);
  hiding = window.setTimeout(() => { toast.className = ""; }, isProblem ? 8000 : 4000);
}

export const many = (count: number, noun: string): string => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

export function debounce<A extends unknown[]>(wait: number, act: (...args: A) => void): (...args: A) => void {
  let timer = 0;
  return (...args) => { clearTimeout(timer); timer = window.setTimeout(() => act(...args), wait); };
}
