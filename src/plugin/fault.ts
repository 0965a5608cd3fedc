/** What was thrown, and where, for people. */
export interface Fault {
  /** One sentence or a part of one, without a line end. */
  readonly fault: string;
  /** `path:line:column` in the plugin's own file, where that can be told. */
  readonly place: string | undefined;
}

/** The longest message that is repeated, in characters. */
const LONGEST = 500;

/** @param path the plugin's own file, absolute; undefined for one that is built in */
export function describeFault(thrown: unknown, path: string | undefined): Fault {
  const text = thrown instanceof Error ? thrown.message || thrown.name : String(thrown);
  return {
    fault: text.replace(/\s+/g, " ").trim().slice(0, LONGEST),
    place: path === undefined ? undefined : findPlace(thrown, path),
  };
}

/** What Bun's errors of syntax have. */
interface Positioned {
  readonly position?: { readonly line: number; readonly column: number } | null;
  readonly errors?: readonly unknown[];
  readonly stack?: string;
}

/** Where in that file it was thrown, as `path:line:column`; undefined if its stack does not say so. */
export function findPlace(thrown: unknown, path: string): string | undefined {
  if (typeof thrown !== "object" || thrown === null) return undefined;
  const { position, errors, stack = "" } = thrown as Positioned;
  if (position) return `${path}:${position.line}:${position.column}`;
  const [first] = errors ?? [];
  if (first !== undefined) return findPlace(first, path);
  // Of a file that was loaded anew, the path has a query behind it; in a URL some characters are escaped.
  for (const name of [path, encodeURI(path)]) {
    const at = stack.indexOf(name);
    if (at === -1) continue;
    const place = /^(?:\?[^:\s)]*)?:(\d+)(?::(\d+))?/.exec(stack.slice(at + name.length));
    if (place !== null) return [path, place[1], place[2]].filter(Boolean).join(":");
  }
  return undefined;
}
