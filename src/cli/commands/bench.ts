import { resolve } from "node:path";
import { measure } from "../../bench/run.ts";
import type { BenchResult } from "../../bench/result.ts";
import type { HubError } from "../../base/errors.ts";
import type { Invocation, CommandContext } from "../command.ts";
import { openLog } from "../load-manifest.ts";
import { makeReporter } from "./reporter.ts";
import { readBenchOptions } from "./bench-options.ts";
import { openBenchSetup } from "./bench-targets.ts";

const INTERRUPTED = 130;

/** Measures what the command line says, and shows what was found. */
export async function bench(invocation: Invocation, world: CommandContext): Promise<number> {
  const settings = readBenchOptions(invocation);
  const file = invocation.values.get("html")?.at(-1);
  const html = file === undefined ? undefined : resolve(world.cwd, file);
  const reporter = await makeReporter({ isJson: invocation.json !== false, html, world });
  const stage = await openBenchSetup(invocation, settings, world, openLog(invocation));
  let result: BenchResult | undefined;
  let broken: HubError | undefined;
  try {
    const plan = { ...settings, subject: stage.subject, direct: stage.direct };
    const tell = reporter.progress.bind(reporter);
    ({ result, broken } = await measure(plan, tell, world.signal));
  } finally {
    try {
      await reporter.finish(result);
    } finally {
      await stage.close();
    }
  }
  if (world.signal.aborted) return INTERRUPTED;
  if (broken !== undefined) throw broken;
  return hasAnswers(result) ? 0 : 1;
}

/** Whether every subject has answered anything. */
function hasAnswers(result: BenchResult | undefined): boolean {
  return result?.subjects.every(({ levels }) => levels.some(({ calls }) => calls > 0)) ?? false;
}
