import { access, constants, stat, writeFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { systemClock } from "../../base/clock.ts";
import { HubError } from "../../base/errors.ts";
import { BenchProgressLine, describeLevel } from "../../bench/report/progress.ts";
import { formatReportText, tabulateResult } from "../../bench/report/tables.ts";
import type { BenchProgress, BenchResult } from "../../bench/result.ts";
import { measure } from "../../bench/run.ts";
import { formatJson } from "../../terminal/terminal.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { openLog } from "../command-log.ts";
import { openBenchSetup } from "../../host/bench-targets.ts";
import { type BenchCommandOptions, readBenchOptions, readTarget } from "../bench-options.ts";

/** Checks that the report can be written, as far as possible without writing it. @throws {HubError} usage */
async function checkReportFile(path: string): Promise<void> {
  const stats = await stat(path).catch(() => undefined);
  if (stats?.isDirectory()) throw unwritable(path, "it is a directory");
  const folder = dirname(resolve(path));
  try {
    if (!(await stat(folder)).isDirectory()) throw unwritable(path, `${folder} is not a directory`);
    await access(stats ? path : folder, constants.W_OK);
  } catch (error) {
    throw error instanceof HubError ? error : unwritable(path, error);
  }
}

/**
 * Writes the HTML report. A new file gets mode 0600, because names of tools and arguments are in it; an
 * existing file keeps its mode.
 * @throws {HubError} usage if it cannot be written
 */
async function writeReportFile(path: string, result: BenchResult): Promise<void> {
  // The chart library is loaded only when a report is written.
  const { formatHtmlReport } = await import("../../bench/report/html.ts");
  try {
    await writeFile(path, formatHtmlReport(result), { mode: 0o600 });
  } catch (error) {
    throw unwritable(path, error);
  }
}

function unwritable(path: string, reason: unknown): HubError {
  const cause = reason instanceof Error ? reason.message : String(reason);
  return new HubError("usage", `Could not write the report to ${path}: ${cause}.`, {
    cause: reason,
  });
}

export interface ReporterOptions {
  readonly isJson: boolean;
  /** Absolute path of the HTML report. */
  readonly htmlFile: string | undefined;
  readonly context: CommandContext;
}

/** Prints the progress and the result of a measurement. */
export interface Reporter {
  /**
   * Prints progress to stderr: a status line on a terminal, and a line for each finished level; nothing with
   * `--json` unless stderr is a terminal.
   */
  progress(event: BenchProgress): void;
  /**
   * Prints the result to stdout and, if requested, writes the HTML report. Must be called once at the end, even without
   * a result, to clear the status line.
   * @throws {HubError} usage if the report cannot be written, after everything else is printed
   */
  finish(result: BenchResult | undefined): Promise<void>;
}

/** Opens a reporter before anything is measured. @throws {HubError} usage if the report's file cannot be written */
async function makeReporter(options: ReporterOptions): Promise<Reporter> {
  const { isJson, htmlFile, context } = options;
  if (htmlFile !== undefined) await checkReportFile(htmlFile);
  const line = context.terminal.openStatusLine();
  const progressLine = new BenchProgressLine(systemClock);
  return {
    progress(event) {
      const text = line && progressLine.format(event);
      if (text !== undefined) line?.show(text);
      if (event.kind !== "level" || (isJson && !line)) return;
      line?.clear();
      context.terminal.note(describeLevel(event.subject, event.level));
    },
    async finish(result) {
      line?.clear();
      if (result === undefined) return;
      context.terminal.printWrapped(
        isJson
          ? formatJson(result)
          : formatReportText(tabulateResult(result), context.terminal.stdout),
      );
      if (htmlFile === undefined) return;
      await writeReportFile(htmlFile, result);
      context.terminal.note(`Wrote the report: ${htmlFile}`);
    },
  };
}

const INTERRUPTED_EXIT_CODE = 130;

/** `toolmux bench`: measures and prints the result. */
export async function bench(
  invocation: Invocation<BenchCommandOptions>,
  context: CommandContext,
): Promise<number> {
  const options = readBenchOptions(invocation.options);
  const { html: file, json } = invocation.options;
  const htmlFile = file === undefined ? undefined : resolve(context.cwd, file);
  const reporter = await makeReporter({ isJson: json, htmlFile, context });
  const setup = await openBenchSetup(
    readTarget(invocation, context),
    invocation,
    options,
    context,
    openLog(invocation),
  );
  let result: BenchResult | undefined;
  let failure: HubError | undefined;
  try {
    const plan = { ...options, subject: setup.subject, direct: setup.direct };
    const onProgress = reporter.progress.bind(reporter);
    ({ result, failure } = await measure(plan, onProgress, context.signal));
  } finally {
    try {
      await reporter.finish(result);
    } finally {
      await setup.close();
    }
  }
  if (context.signal.aborted) return INTERRUPTED_EXIT_CODE;
  if (failure !== undefined) throw failure;
  return hasAnswers(result) ? 0 : 1;
}

/** Whether every subject has answered at least one call. */
function hasAnswers(result: BenchResult | undefined): boolean {
  return result?.subjects.every(({ levels }) => levels.some(({ calls }) => calls > 0)) ?? false;
}
