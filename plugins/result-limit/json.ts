import { memberOf, readSpelling, rewrite } from "../../src/plugin/plugin.ts";

export { memberOf, rewrite };

/** The elements of an array, as they are spelled; none if it is none. */
export function readElements(json: string): string[] {
  const part = readSpelling(json);
  if (part?.kind !== "array") return [];
  return part.elements.map(({ start, end }) => json.slice(start, end));
}
