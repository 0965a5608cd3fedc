/** A table of a parsed file. It has no prototype, so `__proto__` is an ordinary key. */
export type Table = Readonly<Record<string, unknown>>;

export function createTable<T>(): Record<string, T> {
  return Object.create(null) as Record<string, T>;
}

export function isTable(value: unknown): value is Table {
  return (
    typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Date)
  );
}

/** Deep equality of values; the order of keys does not matter. */
export function isDeepEqual(a: unknown, b: unknown): boolean {
  if (Array.isArray(a) && Array.isArray(b)) {
    return a.length === b.length && a.every((item, i) => isDeepEqual(item, b[i]));
  }
  if (a instanceof Date && b instanceof Date) return a.getTime() === b.getTime();
  if (!isTable(a) || !isTable(b)) return Object.is(a, b);
  const keys = Object.keys(a);
  return (
    keys.length === Object.keys(b).length &&
    keys.every((key) => Object.hasOwn(b, key) && isDeepEqual(a[key], b[key]))
  );
}

/**
 * A copy without the keys of tables, at any depth, whose value is null: for an optional key of another program's file,
 * null means that the key is absent. The items of arrays stay, because their place counts.
 */
export function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls);
  return isTable(value) ? tableWithoutNulls(value) : value;
}

/** `withoutNulls` for a table. */
export function tableWithoutNulls(value: Table): Table {
  const table = createTable<unknown>();
  for (const [key, inner] of Object.entries(value)) {
    if (inner !== null && inner !== undefined) table[key] = withoutNulls(inner);
  }
  return table;
}
