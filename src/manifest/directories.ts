import * as v from "valibot";
import { text } from "./fields.ts";
import type { UnplacedProblem } from "./problems.ts";
import type { ConfigSource } from "./source.ts";
import type { Table } from "./table.ts";
import { validate } from "./validate.ts";

/* The manifest's table `search`: the registries that `toolmux search` uses. */

const REGISTRY_FORMAT = /^(?:official|smithery|(?:(?:official|smithery)=)?https?:\/\/[^\s?#@]+)$/;

export const registrySchema = v.strictObject({
  directories: v.exactOptional(
    v.array(
      v.pipe(
        text,
        v.regex(REGISTRY_FORMAT, `"official", "smithery", a URL, or one of these with = and a URL`),
      ),
      "an array of directories",
    ),
  ),
});

/** Reads the table `search` of a manifest. @returns `registries` undefined if it is not set or invalid */
export function readRegistrySettings(table: Table): {
  readonly registries: readonly string[] | undefined;
  readonly problems: readonly UnplacedProblem[];
} {
  const checked = validate(registrySchema, table["search"] ?? {}, ["search"]);
  return checked.ok
    ? { registries: checked.value.directories, problems: [] }
    : { registries: undefined, problems: checked.problems };
}

/** The registries of the last file that names any. */
export function pickRegistries(sources: readonly ConfigSource[]): readonly string[] | undefined {
  return sources.findLast(({ fileConfig: reading }) => reading.registries !== undefined)?.fileConfig
    .registries;
}
