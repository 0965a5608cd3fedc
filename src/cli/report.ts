import type { HubError } from "../errors.ts";

/*
 * All that is told on stderr goes through console.warn: console.error is red on some runtimes' terminals.
 */

/** Tells one line on stderr. */
export function printLine(text: string): void {
  console.warn(`toolmux: ${clean(text)}`);
}

/** Tells an error on stderr. Problems of a manifest stand alone on their lines, as editors read them. */
export function printError(error: HubError): void {
  if (error.code === "manifestInvalid") {
    console.warn(error.message);
    return;
  }
  printLine(error.message);
  for (const line of error.stderr) console.warn(`  ${clean(line)}`);
  if (error.code === "usage") console.warn("Try: toolmux help");
}

/** Why a server is not there, in one line, with its last words. */
export function describeFailure({ message, stderr }: HubError): string {
  return stderr.length === 0 ? message : `${message} Its last words: ${stderr.join(" | ")}`;
}

/** Text of others in one line, without what would move a terminal's cursor or change its colours. */
export function clean(text: string): string {
  // oxlint-disable-next-line no-control-regex
  return text.replace(/[\u0000-\u001f\u007f-\u009f]+/g, " ");
}
