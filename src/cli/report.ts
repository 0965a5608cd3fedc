import type { HubError } from "../errors.ts";

/*
 * All that is told on stderr goes through console.warn: console.error is red on some runtimes' terminals.
 */

/** Tells one line on stderr. */
export function printLine(text: string): void {
  console.warn(formatLine(text));
}

/** A line as it stands on stderr, without its end. */
export function formatLine(text: string): string {
  return `toolmux: ${clean(text)}`;
}

/** Tells an error on stderr. `topic`: the command whose help may help. */
export function printError(error: HubError, topic?: string): void {
  console.warn(describeError(error, topic));
}

/** An error and the last words of its server. Problems of a manifest stand alone on their lines, as editors read them. */
export function describeError({ code, message, stderr }: HubError, topic = ""): string {
  if (code === "manifestInvalid") return message;
  const more = stderr.map((line) => `  ${clean(line)}`);
  if (code === "usage") more.push(`Try: toolmux help ${topic}`.trimEnd());
  return [`toolmux: ${clean(message)}`, ...more].join("\n");
}

/** Why a server is not there, in one line, with its last words. */
export function describeFailure({ message, stderr }: HubError): string {
  return stderr.length === 0 ? message : `${message} Its last words: ${stderr.join(" | ")}`;
}

/** Text of others over several lines, without what would move a terminal's cursor or change its colours. */
export function cleanLines(text: string): string {
  // oxlint-disable-next-line no-control-regex
  const controls = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;
  return text.replaceAll("\r\n", "\n").replace(controls, "\ufffd");
}

/** Text of others in one line, without what would move a terminal's cursor or change its colours. */
export function clean(text: string): string {
  // oxlint-disable-next-line no-control-regex
  return text.replace(/[\u0000-\u001f\u007f-\u009f]+/g, " ");
}
