import { access, constants, stat, writeFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { systemClock } from "../../base/clock.ts";
import { HubError } from "../../base/errors.ts";
import {
  type Circumstances,
  compareResults,
  type ComparisonResult,
  type DifferenceKind,
  findDifferences,
  refuseDifferences,
} from "../../bench/comparison.ts";
import { describeComparison, describeRules } from "../../bench/report/comparison.ts";
import { BenchProgressLine, describeLevel } from "../../bench/report/progress.ts";
import { formatReportText, type ReportTable, tabulateResult } from "../../bench/report/tables.ts";
import type { BenchProgress, BenchResult } from "../../bench/result.ts";
import { applyRule, describeBreach, type RuleResult } from "../../bench/rules.ts";
import { measure, shortenArguments } from "../../bench/run.ts";
import { readSavedResult, writeSavedResult } from "../../bench/saved-result.ts";
import { machineInfo } from "../../bench/usage.ts";
import { formatJson } from "../../terminal/terminal.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { openLog } from "../command-log.ts";
import { type BenchOptions, type BenchSetup, openBenchSetup } from "../../host/bench-targets.ts";
import { type BenchCommandOptions, readBenchOptions, readTarget } from "../bench-options.ts";

/** Checks that a file can be written, as far as possible without writing it. @throws {HubError} usage */
async function checkWritable(path: string): Promise<void> {
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
async function writeReportFile(path: string, { result, ...verdict }: BenchReport): Promise<void> {
  // The chart library is loaded only when a report is written.
  const { formatHtmlReport } = await import("../../bench/report/html.ts");
  try {
    await writeFile(path, formatHtmlReport(result, tablesOf(verdict)), { mode: 0o600 });
  } catch (error) {
    throw unwritable(path, error);
  }
}

function unwritable(path: string, reason: unknown): HubError {
  const cause = reason instanceof Error ? reason.message : String(reason);
  return new HubError("usage", `Could not write ${path}: ${cause}.`, {
    cause: reason,
  });
}

/** A result with what `--against` and `--fail-if` make of it; undefined without these options. */
interface BenchReport {
  readonly result: BenchResult;
  readonly comparison: ComparisonResult | undefined;
  readonly rules: readonly RuleResult[] | undefined;
}

function tablesOf({ comparison, rules }: Omit<BenchReport, "result">): readonly ReportTable[] {
  return [
    ...(comparison === undefined ? [] : [describeComparison(comparison)]),
    ...(rules === undefined ? [] : [describeRules(rules)]),
  ];
}

interface ReporterOptions {
  readonly isJson: boolean;
  /** Absolute path of the HTML report. */
  readonly htmlFile: string | undefined;
  readonly context: CommandContext;
}

/** Prints the progress and the result of a measurement. */
interface Reporter {
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
  finish(report: BenchReport | undefined): Promise<void>;
}

/** Opens a reporter before anything is measured. @throws {HubError} usage if the report's file cannot be written */
async function makeReporter(options: ReporterOptions): Promise<Reporter> {
  const { isJson, htmlFile, context } = options;
  if (htmlFile !== undefined) await checkWritable(htmlFile);
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
    async finish(report) {
      line?.clear();
      if (report === undefined) return;
      const { result, comparison, rules } = report;
      const document = {
        ...result,
        ...(comparison && { comparison }),
        ...(rules && { rules }),
      };
      context.terminal.print(
        isJson
          ? formatJson(document)
          : formatReportText(tabulateResult(result, tablesOf(report)), context.terminal.stdout),
      );
      if (htmlFile === undefined) return;
      await writeReportFile(htmlFile, report);
      context.terminal.note(`Wrote the report: ${htmlFile}`);
    },
  };
}

/** An earlier result, with which the measurement is compared. */
interface Earlier {
  readonly file: string;
  readonly result: BenchResult;
  readonly accepted: readonly DifferenceKind[];
}

/** @throws {HubError} usage if the circumstances differ in what is not accepted */
function compareWith(earlier: Earlier, result: BenchResult): ComparisonResult {
  const differences = findDifferences(earlier.result, result);
  refuseDifferences(earlier.file, differences, earlier.accepted);
  return compareResults(earlier.result, result, differences);
}

/** Returns the circumstances that are known before something is measured. */
function circumstancesOf(options: BenchOptions, { subject, direct }: BenchSetup): Circumstances {
  const { loop, extent, chaos } = options;
  const tools = options.tools.flatMap(({ name, weight, args }) =>
    name === undefined ? [] : [{ name, weight, arguments: shortenArguments(args) }],
  );
  return {
    machine: machineInfo(),
    load: { loop, extent, chaos, ...(tools.length > 0 && { tools }) },
    subjects: direct === undefined ? [subject] : undefined,
  };
}

const INTERRUPTED_EXIT_CODE = 130;

/** `toolmux bench`: measures, prints the result, and judges it by an earlier one and by rules. */
export async function bench(
  invocation: Invocation<BenchCommandOptions>,
  context: CommandContext,
): Promise<number> {
  const options = readBenchOptions(invocation.options);
  const { html, save, against, json } = invocation.options;
  const [htmlFile, saveFile, againstFile] = [html, save, against].map((file) =>
    file === undefined ? undefined : resolve(context.cwd, file),
  );
  const earlier: Earlier | undefined =
    againstFile === undefined
      ? undefined
      : {
          file: againstFile,
          result: await readSavedResult(againstFile),
          accepted: options.accepted,
        };
  if (saveFile !== undefined) await checkWritable(saveFile);
  const reporter = await makeReporter({ isJson: json, htmlFile, context });
  const setup = await openBenchSetup(
    readTarget(invocation, context),
    invocation,
    options,
    context,
    openLog(invocation),
  );
  let report: BenchReport | undefined;
  let failure: HubError | undefined;
  try {
    if (earlier !== undefined)
      refuseDifferences(
        earlier.file,
        findDifferences(earlier.result, circumstancesOf(options, setup)),
        earlier.accepted,
      );
    const plan = { ...options, subject: setup.subject, direct: setup.direct };
    const outcome = await measure(plan, reporter.progress.bind(reporter), context.signal);
    failure = outcome.failure;
    const { result } = outcome;
    report = result && { result, comparison: undefined, rules: undefined };
    // Part of a measurement is printed, but neither compared nor judged.
    if (result !== undefined && failure === undefined)
      report = {
        result,
        comparison: earlier && compareWith(earlier, result),
        rules:
          options.rules.length === 0
            ? undefined
            : options.rules.map((rule) => applyRule(rule, result, earlier?.result)),
      };
  } finally {
    try {
      await reporter.finish(report);
    } finally {
      await setup.close();
    }
  }
  const isInterrupted = context.signal.aborted;
  const isWhole = !isInterrupted && failure === undefined && hasAnswers(report?.result);
  if (saveFile !== undefined) {
    if (isWhole && report !== undefined) {
      await writeSavedResult(saveFile, report.result).catch((error: unknown) => {
        throw unwritable(saveFile, error);
      });
      context.terminal.note(`Saved the result: ${saveFile}`);
    } else
      context.terminal.note(`Not saved: ${saveFile}, because the measurement is not complete.`);
  }
  if (isInterrupted) return INTERRUPTED_EXIT_CODE;
  if (failure !== undefined) throw failure;
  const broken = report?.rules?.filter(({ isBroken }) => isBroken) ?? [];
  for (const rule of broken) context.terminal.note(describeBreach(rule));
  return isWhole && broken.length === 0 ? 0 : 1;
}

/** Whether every subject has answered at least one call. */
function hasAnswers(result: BenchResult | undefined): boolean {
  return result?.subjects.every(({ levels }) => levels.some(({ calls }) => calls > 0)) ?? false;
}
