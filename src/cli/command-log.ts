import { isLevelEnabled, type LogRecord, makeLogRecord, printLogRecord } from "../terminal/log.ts";
import type { CommandLog } from "../operations/load-manifest.ts";
import type { StatusLine } from "../terminal/terminal.ts";
import type { Invocation } from "./command.ts";

/**
 * Opens a log that drops records below the level of `--log-level`.
 * @param print receives the records that are not dropped; by default it prints each on stderr at once
 */
export function openLog(
  { logLevel, logFormat }: Invocation,
  print: (record: LogRecord) => void = (record) => printLogRecord(record, logFormat),
): CommandLog {
  return (level, what) => {
    if (!isLevelEnabled(level, logLevel)) return;
    print(typeof what === "string" ? makeLogRecord(level, what) : what);
  };
}

/** A log that clears the status line before each record. */
export function openLogBeside(line: StatusLine | undefined, invocation: Invocation): CommandLog {
  return openLog(invocation, (record) => {
    line?.clear();
    printLogRecord(record, invocation.logFormat);
  });
}
