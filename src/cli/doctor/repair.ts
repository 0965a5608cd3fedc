import { chmod, rm } from "node:fs/promises";
import type { Finding, Fix } from "./findings.ts";
import { sweepOrphans } from "../../process/orphans.ts";

/** Does what is safe about those findings. What cannot be done is left to be found again. @returns what was done, as sentences */
export async function repair(findings: readonly Finding[]): Promise<readonly string[]> {
  const fixes = findings.flatMap((finding) => finding.fixes ?? []);
  const done: string[] = [];
  for (const fix of fixes) {
    const text = await carryOut(fix).catch(() => undefined);
    if (text !== undefined) done.push(text);
  }
  return done;
}

async function carryOut(fix: Fix): Promise<string | undefined> {
  switch (fix.kind) {
    case "permit":
      await chmod(fix.path, fix.mode);
      return `Only you can get at ${fix.path} now.`;
    case "remove":
      await rm(fix.path);
      return `Removed ${fix.path}.`;
    case "sweep": {
      const ended = await sweepOrphans();
      return ended === 0 ? undefined : `Ended ${ended} of the processes that were left.`;
    }
  }
}
