import * as v from "valibot";
import { text } from "./fields.ts";
import type { Complaint } from "./problems.ts";
import type { Source } from "./source.ts";
import type { Table } from "./table.ts";
import { validate } from "./validate.ts";

/* The manifest's table `search`: the registries that `toolmux search` uses. */

const FORM = /^(?:official|smithery|(?:(?:official|smithery)=)?https?:\/\/[^\s?#@]+)$/;

export const searchSchema = v.strictObject({
  directories: v.exactOptional(
    v.array(
      v.pipe(
        text,
        v.regex(FORM, `"official", "smithery", a URL, or one of these with = and a URL`),
      ),
      "an array of directories",
    ),
  ),
});

/** Reads the table `search` of a manifest. @returns `registries` undefined if it is not set or invalid */
export function readSearch(table: Table): {
  readonly directories: readonly string[] | undefined;
  readonly complaints: readonly Complaint[];
} {
  const checked = validate(searchSchema, table["search"] ?? {}, ["search"]);
  return checked.ok
    ? { directories: checked.value.directories, complaints: [] }
    : { directories: undefined, complaints: checked.complaints };
}

/** The registries of the last file that names any. */
export function pickDirectories(sources: readonly Source[]): readonly string[] | undefined {
  return sources.findLast(({ reading }) => reading.directories !== undefined)?.reading.directories;
}
