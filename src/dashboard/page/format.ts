import { formatAge, formatDuration, formatElapsed, nounFor } from "../../base/format.ts";
import {
  countServers,
  describeIndicator,
  type Verdict,
  verdictOf,
} from "../../upstream/verdict.ts";
import {
  describeServers,
  describeStanding,
  describeState,
  type DescribedState,
  isFailing,
  reasonOfState,
} from "../../control/state-text.ts";
import type { UpstreamState, ServerDocument, ServerState } from "./documents.ts";

/** The texts of the page. Times are in ms since the epoch, durations in ms, sizes in bytes. */

export type Tone = "good" | "busy" | "bad" | "quiet";

const TONES: Readonly<Record<ServerState | UpstreamState, Tone>> = {
  connected: "good",
  connecting: "busy",
  authenticating: "busy",
  reconnecting: "busy",
  failed: "bad",
  notStarted: "busy",
  idle: "quiet",
  stopping: "quiet",
  disconnected: "quiet",
  stopped: "quiet",
  disabled: "quiet",
};

export function toneOf(state: ServerState | UpstreamState): Tone {
  return TONES[state];
}

/** The tone of a server: that of its state, or of a failure that further attempts have not cured. */
export function toneOfServer(
  server: DescribedState & { readonly state: ServerState | UpstreamState },
): Tone {
  return isFailing(server) ? "bad" : toneOf(server.state);
}

/** The state of a server or connection in words, as the hub describes it, with the time that has passed since. */
export function statusText(described: DescribedState, now: number): string {
  const text = describeState(described, now);
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

/** The same in two parts: the state, and the reason of a failure, which may be long. */
export function statusParts(
  described: DescribedState,
  now: number,
): { readonly standing: string; readonly reason: string | undefined } {
  const text = describeStanding(described, now);
  const standing = text.slice(0, 1).toUpperCase() + text.slice(1);
  return { standing, reason: reasonOfState(described) };
}

/** The same without the noun, below a header that has it. */
export function toolCell({ shown, tools }: Pick<ServerDocument, "shown" | "tools">): string {
  const all = tools === undefined || tools === shown ? "" : ` of ${formatNumber(tools)}`;
  return `${formatNumber(shown)}${all}`;
}

/** The number of tools that clients see, and the number that the server lists, if it differs. */
export function toolBadge({ shown, tools }: Pick<ServerDocument, "shown" | "tools">): string {
  if (tools === undefined || tools === shown) return count(shown, "tool");
  return `${formatNumber(shown)} of ${count(tools, "tool")}`;
}

const VERDICT_TONES: Readonly<Record<Verdict, Tone>> = {
  healthy: "good",
  partial: "busy",
  failed: "bad",
  none: "quiet",
};

/**
 * The servers as a whole: how many are connected, the counts of all states, and the tone of the verdict, or of a server
 * that fails.
 */
export function indicatorOf(servers: readonly ServerDocument[]): {
  readonly text: string;
  readonly title: string;
  readonly tone: Tone;
} {
  const counts = countServers(servers);
  return {
    text: describeIndicator(counts),
    title: describeServers(servers),
    tone: servers.some((server) => toneOfServer(server) === "bad")
      ? "bad"
      : VERDICT_TONES[verdictOf(servers)],
  };
}

export function count(amount: number, noun: string): string {
  return `${formatNumber(amount)} ${nounFor(amount, noun)}`;
}

const numbers = new Intl.NumberFormat("en");

export function formatNumber(value: number): string {
  return numbers.format(value);
}

export { formatDuration, formatElapsed };

/** A duration that was measured. Below 10 ms, it has two significant digits. */
export function formatMeasured(ms: number): string {
  return ms < 9.95 ? `${Number(ms.toPrecision(2))} ms` : formatDuration(ms);
}

export function formatAgo(at: number, now: number): string {
  return formatAge(now - at);
}

export function formatBytes(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  const units = ["KB", "MB", "GB", "TB"];
  let value = bytes;
  let unit = -1;
  do {
    value /= 1000;
    unit++;
  } while (value >= 999.5 && unit < units.length - 1);
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

const clock = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
});

export function formatTime(at: number): string {
  return clock.format(at);
}

const date = new Intl.DateTimeFormat("sv-SE");

/** A time with its date, in the time zone of the person: year, month and day first. */
export function formatDateTime(at: number): string {
  return `${date.format(at)} ${formatTime(at)}`;
}

export function formatTokens(tokens: number): string {
  return tokens < 1000 ? `${tokens}` : `${(tokens / 1000).toFixed(tokens < 10_000 ? 1 : 0)} k`;
}

/** Whether the texts together contain all words. */
export function matchesWords(words: string, ...texts: readonly (string | undefined)[]): boolean {
  const whole = texts.join(" ").toLowerCase();
  return words
    .toLowerCase()
    .split(/\s+/)
    .every((word) => whole.includes(word));
}

/** Comma-separated values (RFC 4180). A cell that a spreadsheet would take for a formula gets an apostrophe. */
export function toCsv(
  columns: readonly string[],
  rows: readonly (readonly (string | number | undefined)[])[],
): string {
  const cell = (value: string | number | undefined): string => {
    const text = String(value ?? "");
    const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return [columns, ...rows].map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

/** Splits a command line into words. Quotes and backslashes work as in a shell; there is no other shell syntax. */
export function splitCommandLine(line: string): readonly string[] {
  const words: string[] = [];
  let word: string | undefined;
  let quote = "";
  for (let at = 0; at < line.length; at++) {
    const character = line.charAt(at);
    if (quote !== "") {
      if (character === quote) quote = "";
      else if (character === "\\" && quote === '"') word = (word ?? "") + line.charAt(++at);
      else word = (word ?? "") + character;
    } else if (character === '"' || character === "'") {
      quote = character;
      word ??= "";
    } else if (character === "\\") word = (word ?? "") + line.charAt(++at);
    else if (/\s/.test(character)) {
      if (word !== undefined) words.push(word);
      word = undefined;
    } else word = (word ?? "") + character;
  }
  if (word !== undefined) words.push(word);
  return words;
}

/** Parses lines of the form `NAME=value` or `Name: value` into a table. */
export function parsePairs(text: string, separator: "=" | ":"): Record<string, string> {
  const pairs = text
    .split("\n")
    .map((line) => [line.indexOf(separator), line] as const)
    .filter(([at]) => at > 0)
    .map(([at, line]) => [line.slice(0, at).trim(), line.slice(at + 1).trim()] as const);
  return Object.fromEntries(pairs);
}

/** A name for a server, made from the last part of a package, a URL or a name in a directory. */
export function suggestName(text: string): string {
  const last =
    text
      .replace(/^\w+:\/*/, "")
      .split("/")
      .findLast((part) => part !== "") ?? "";
  const name = last
    .replace(/@[^@]*$/, "")
    .toLowerCase()
    .replace(/^(?:mcp-server-|server-|mcp-)|(?:-mcp-server|-mcp|-server)$/g, "")
    .replace(/[^a-z0-9_-]+/g, "-")
    .replace(/^-+|(?<!-)-+$/g, "");
  return name === "" ? "server" : name;
}
