import { HubError } from "../base/errors.ts";
import { isMasked } from "./shown-keys.ts";
import { MASK, maskArguments, maskSecretParts } from "./plaintext-secrets.ts";
import { isDeepEqual, isTable, type Table } from "./table.ts";

/** A server's entry with `•••` in place of what may be a secret; references such as `${secret:NAME}` stay. */
export function maskEntry(entry: Table): Table {
  return mapValues(entry, (value, key) => {
    if (isMasked([key])) return maskAll(value);
    if (key === "args" && Array.isArray(value) && value.every((one) => typeof one === "string"))
      return maskArguments(value);
    return typeof value === "string" ? maskSecretParts(value) : value;
  });
}

/**
 * Replaces the masks in an entry that a person has edited in its masked form by the values of the present entry.
 * @throws {HubError} invalidParams if the edited entry has a mask where the masked present entry has none
 */
export function unmaskEntry(changed: Table, present: Table): Table {
  return mapValues(changed, (value, key) => unmask(value, maskEntry(present)[key], present[key]));
}

function unmask(value: unknown, masked: unknown, present: unknown): unknown {
  if (isDeepEqual(value, masked)) return present;
  if (isTable(value)) {
    const [before, full] = [isTable(masked) ? masked : {}, isTable(present) ? present : {}];
    return mapValues(value, (inner, key) => unmask(inner, before[key], full[key]));
  }
  if (Array.isArray(value)) {
    const [before, full] = [asList(masked), asList(present)];
    // Finds an unchanged element by its masked value, not by its index: elements before it may have been added or
    // removed.
    return value.map((inner: unknown) => {
      const at = before.indexOf(inner);
      return at < 0 ? unmask(inner, undefined, undefined) : full[at];
    });
  }
  if (typeof value === "string" && value.includes(MASK)) {
    const text = `${MASK} stands for a value that is not shown: write the value, or a reference such as \${secret:NAME}.`;
    throw new HubError("invalidParams", text);
  }
  return value;
}

function asList(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function maskAll(value: unknown): unknown {
  if (isTable(value)) return mapValues(value, maskAll);
  if (Array.isArray(value)) return value.map(maskAll);
  return typeof value === "string" && value.includes("${") ? value : MASK;
}

function mapValues(table: Table, change: (value: unknown, key: string) => unknown): Table {
  return Object.fromEntries(Object.entries(table).map(([key, value]) => [key, change(value, key)]));
}
