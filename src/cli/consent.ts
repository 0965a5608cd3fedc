import { once } from "node:events";
import process from "node:process";
import { sanitizeLine } from "../terminal/report.ts";
import { untilAborted } from "../base/grace.ts";

/** Asks a person on the terminal; undefined if there is nobody to ask. Anything but yes is no. @throws the signal's reason */
export async function askConsent(
  question: string,
  signal: AbortSignal,
): Promise<boolean | undefined> {
  const { stdin, stderr } = process;
  if (!stdin.isTTY || !stderr.isTTY) return undefined;
  const { createInterface } = await import("node:readline/promises");
  // The terminal stays as it is: Ctrl-C reaches the process, as everywhere else.
  const lines = createInterface({ input: stdin, output: stderr, terminal: false });
  try {
    const end = once(lines, "close").then(() => "\n");
    const asked = lines.question(`${sanitizeLine(question)} [y/N] `);
    const answer = await untilAborted(Promise.race([asked, end]), signal);
    if (answer === "\n") stderr.write(answer);
    return /^y(?:es)?$/i.test(answer.trim());
  } finally {
    lines.close();
  }
}
