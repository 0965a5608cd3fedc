import type { BenchProgress, BenchResult } from "../../bench/result.ts";
import { systemClock } from "../../base/clock.ts";
import type { CommandContext } from "../command.ts";
import { ownConsole } from "../../terminal/console.ts";
import { terminalStyleOf, formatJson, openStatusLine } from "../../terminal/terminal.ts";
import { printLine } from "../../terminal/report.ts";
import { tabulateResult } from "../../bench/report/tables.ts";
import { describeLevel, BenchProgressLine } from "../../bench/report/progress.ts";
import { checkPage, writePage } from "./file.ts";
import { formatReportText } from "../../bench/report/text.ts";

/** How what is measured is shown. */
export interface ReporterOptions {
  /** The result is printed as one JSON document, for programs. */
  readonly isJson: boolean;
  /** The file for a page with charts; absolute. */
  readonly html: string | undefined;
  readonly world: CommandContext;
}

/** Shows people, or programs, what a measurement finds. */
export interface Reporter {
  /** How it goes on, on stderr: in a line of a terminal, and one for each level that is done. Programs are told nothing. */
  progress(event: BenchProgress): void;
  /**
   * What was found, on stdout and, if wanted, as a page. To be called once, last, also if nothing was found: whatever
   * follows is then printed below.
   * @throws {HubError} usage if the page cannot be written; all else is printed then
   */
  finish(result: BenchResult | undefined): Promise<void>;
}

/** @throws {HubError} usage if there will be no place for the page: rather now than when all was measured */
export async function makeReporter(options: ReporterOptions): Promise<Reporter> {
  const { isJson, html, world } = options;
  if (html !== undefined) await checkPage(html);
  const line = openStatusLine(world.env);
  const live = new BenchProgressLine(systemClock);
  return {
    progress(event) {
      const text = line && live.describe(event);
      if (text !== undefined) line?.show(text);
      if (event.kind !== "level" || (isJson && !line)) return;
      line?.clear();
      printLine(describeLevel(event.subject, event.level));
    },
    async finish(result) {
      line?.clear();
      if (result === undefined) return;
      ownConsole.log(
        isJson
          ? formatJson(result)
          : formatReportText(tabulateResult(result), terminalStyleOf(world.env)),
      );
      if (html === undefined) return;
      await writePage(html, result);
      printLine(`wrote ${html}`);
    },
  };
}
