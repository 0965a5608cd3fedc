/** A table of a parsed file. It has no prototype, so `__proto__` is a key like any other. */
export type Table = Readonly<Record<string, unknown>>;

export function createTable<T>(): Record<string, T> {
  return Object.create(null) as Record<string, T>;
}

export function isTable(value: unknown): value is Table {
  return (
    typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Date)
  );
}
