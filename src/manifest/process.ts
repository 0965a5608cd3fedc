import * as v from "valibot";
import { nonEmptyText, record, text } from "./fields.ts";
import { ALL_RUNNERS, type PackageSpec, PACKAGE_FORMAT, parsePackage } from "./package.ts";

/* The manifest's keys of a server that runs as a process. */

const packageSchema = v.pipe(
  text,
  v.rawTransform(({ dataset: { value }, addIssue, NEVER }): PackageSpec => {
    const parsed = parsePackage(value);
    if (parsed === undefined) addIssue({ message: PACKAGE_FORMAT });
    return parsed ?? NEVER;
  }),
);

/** The keys that determine how the process is started. */
export const processEntries = {
  command: v.exactOptional(nonEmptyText),
  package: v.exactOptional(packageSchema),
  runner: v.exactOptional(v.picklist(ALL_RUNNERS, `one of ${ALL_RUNNERS.join(", ")}`)),
  args: v.exactOptional(v.array(text, "an array of strings")),
  env: v.exactOptional(record(text)),
  inheritEnv: v.exactOptional(
    v.array(
      v.pipe(text, v.regex(/^[^\s=*]+$/, "the name of an environment variable")),
      "an array of names of environment variables",
    ),
  ),
  cwd: v.exactOptional(nonEmptyText),
};

export const PROCESS_KEYS = Object.keys(processEntries) as readonly (keyof typeof processEntries)[];
