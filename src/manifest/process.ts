import * as v from "valibot";
import { filled, record, text } from "./fields.ts";

/* What a manifest says of a server that is started as a process. */

/** The keys of a server that say how it is started. */
export const processEntries = {
  command: v.exactOptional(filled),
  args: v.exactOptional(v.array(text, "an array of strings")),
  env: v.exactOptional(record(text)),
  inheritEnv: v.exactOptional(
    v.array(
      v.pipe(text, v.regex(/^[^\s=*]+$/, "the name of an environment variable")),
      "an array of names of environment variables",
    ),
  ),
  cwd: v.exactOptional(filled),
};

export const PROCESS_KEYS = Object.keys(processEntries) as readonly (keyof typeof processEntries)[];
