/* Which values of a manifest messages may show, by the notes of the keys (`Notes.shown`). */

import type { GenericSchema } from "valibot";
import { notesOf } from "./fields.ts";
import { findNearest } from "./problems.ts";
import {
  agentFilesSchema,
  fleetSchema,
  agentSchema,
  defaultsSchema,
  hubLimitsSchema,
  hubSchema,
  modelSchema,
  modeSchema,
  namedClientSchema,
  pluginSchema,
  registrySchema,
  secretsSchema,
  serverSchema,
  telemetrySchema,
  toolSearchSchema,
  toolsetSchema,
} from "./schema.ts";

/**
 * The keys of all tables by name. `shown`: their values may be shown. `open`: those of them whose values are tables, in
 * which everything may be shown. `masked`: nothing in their values may be shown; so is a name that is masked in one table
 * and shown in another.
 */
interface KeyNames {
  readonly shown: ReadonlySet<string>;
  readonly open: ReadonlySet<string>;
  readonly masked: ReadonlySet<string>;
}

let names: KeyNames | undefined;

function keyNames(): KeyNames {
  if (names !== undefined) return names;
  const tables = [
    hubSchema(),
    defaultsSchema(),
    serverSchema,
    pluginSchema(),
    modeSchema(),
    namedClientSchema(),
    registrySchema(),
    toolSearchSchema(),
    modelSchema(),
    agentSchema(),
    agentFilesSchema(),
    toolsetSchema(),
    fleetSchema(),
    secretsSchema(),
    hubLimitsSchema(),
    telemetrySchema(),
  ];
  const keys = tables.flatMap(({ entries }) => Object.entries<GenericSchema>(entries));
  const isShown = (schema: GenericSchema): boolean => notesOf(schema)?.shown === true;
  const masked = new Set(keys.filter(([, schema]) => !isShown(schema)).map(([key]) => key));
  const others = keys.filter(([key]) => !masked.has(key));
  names = {
    masked,
    shown: new Set(others.map(([key]) => key)),
    open: new Set(others.filter(([, schema]) => hasKeys(schema)).map(([key]) => key)),
  };
  return names;
}

/** Whether the value of a key is a table. */
function hasKeys(schema: GenericSchema): boolean {
  const { wrapped = schema } = schema as { readonly wrapped?: GenericSchema };
  return ["strict_object", "record", "custom"].includes(wrapped.type);
}

/** Whether one of these keys has a value in which nothing may be shown. */
export function isMasked(keys: readonly string[]): boolean {
  return keys.some((key) => keyNames().masked.has(key));
}

/**
 * Whether the value at these keys may be shown, unless it looks like a secret. A misspelt key counts as the one that was
 * probably meant; an unknown key is masked.
 * @param keys from a table of the manifest, or from its root, to the value
 */
export function mayShow(keys: readonly string[]): boolean {
  if (isMasked(keys)) return false;
  const { shown, open, masked } = keyNames();
  if (keys.some((key) => open.has(key))) return true;
  return shown.has(findNearest(keys.at(-1) ?? "", [...shown, ...masked]) ?? "");
}
