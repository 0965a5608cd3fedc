import { join } from "node:path";
import * as v from "valibot";
import { definePlugin, size } from "../../src/plugin/plugin.ts";
import { LineQueue } from "./line-queue.ts";
import {
  describeAnswer,
  describeFailure,
  formatApproval,
  formatCall,
  formatScanAlert,
} from "./entry.ts";
import { LogFile } from "./file.ts";
import { parsePath, Redaction } from "./redaction.ts";

/** How long `dispose` waits for unwritten lines, in ms; less than the 1 s that the hub waits for `dispose`. */
const CLOSE_TIMEOUT = 800;

const MAX_FILES = 100;
const KEEP = `a whole number between 0 and ${MAX_FILES}`;
const PATH = `a path such as "password", "auth.token", "items.*.secret" or "**.token"`;
const flag = v.boolean("true or false");

const options = v.strictObject({
  file: v.exactOptional(v.pipe(v.string("a string"), v.nonEmpty("a string that is not empty"))),
  arguments: v.exactOptional(flag, false),
  redact: v.exactOptional(
    v.array(
      v.pipe(
        v.string(PATH),
        v.check((path) => parsePath(path) !== undefined, PATH),
      ),
      "an array of paths",
    ),
    [],
  ),
  maxSize: v.exactOptional(size, "10MiB"),
  keep: v.exactOptional(
    v.pipe(v.number(KEEP), v.integer(KEEP), v.minValue(0, KEEP), v.maxValue(MAX_FILES, KEEP)),
    5,
  ),
});

/**
 * Writes one JSON line per call when the call has ended, one per approval decision about a call, and one when
 * suspicious text was found in the definitions of a server or is gone. Calls neither wait for the write nor fail because of it.
 */
export default definePlugin<v.InferOutput<typeof options>>({
  name: "audit-log",
  options,
  whenBroken: "pass",
  async setup({ file, arguments: withArguments, redact, maxSize, keep }, host) {
    const path = file === undefined ? join(await host.folder(), "audit.jsonl") : host.resolve(file);
    const backlog = new LineQueue(new LogFile(path, { maxSize, keep }), {
      log: (level, text) => host.log(level, text),
    });
    const redaction = withArguments ? new Redaction(redact) : undefined;
    host.subscribe(
      (event, { at }) => {
        if (event.kind === "approval" && event.change === "decided")
          backlog.add(formatApproval(event, at));
        if (event.kind === "alert" && event.alert.kind === "suspiciousText")
          if (event.alert.dismissed !== true) backlog.add(formatScanAlert(event, at));
      },
      ["approval", "alert"],
    );
    return {
      call(next) {
        return (call) => {
          const started = Date.now();
          const from = performance.now();
          const answered = next(call);
          // The promise of `next` is returned unchanged, so that the answer does not wait for the log.
          const logEnd = (ending: Parameters<typeof formatCall>[1]): void => {
            const duration = performance.now() - from;
            backlog.add(formatCall(call, ending, { started, duration }, redaction));
          };
          answered
            .then(
              (answer) => logEnd(describeAnswer(answer)),
              (error: unknown) => logEnd(describeFailure(error)),
            )
            .catch((error: unknown) =>
              host.log("error", `a call was not logged: ${String(error)}`),
            );
          return answered;
        };
      },
      dispose: () => backlog.close(CLOSE_TIMEOUT),
    };
  },
});
