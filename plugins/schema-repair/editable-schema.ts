import type { Schema } from "./keywords.ts";

export interface RepairedSchema {
  readonly schema: unknown;
  /**
   * Whether the repaired schema may accept values that the original rejects. It always accepts every value that the
   * original accepts.
   */
  readonly isWider: boolean;
}

/** A schema that is changed step by step; the original object stays as it is. */
export class EditableSchema {
  isWider = false;
  readonly #original: Schema;
  /** A copy of the schema, made at the first change: most schemas need no change. */
  #copy: Map<string, unknown> | undefined;

  constructor(schema: Schema) {
    this.#original = schema;
  }

  keywords(): string[] {
    return this.#copy === undefined ? Object.keys(this.#original) : [...this.#copy.keys()];
  }

  has(keyword: string): boolean {
    return this.#copy?.has(keyword) ?? Object.hasOwn(this.#original, keyword);
  }

  get(keyword: string): unknown {
    if (this.#copy !== undefined) return this.#copy.get(keyword);
    return Object.hasOwn(this.#original, keyword) ? this.#original[keyword] : undefined;
  }

  set(keyword: string, value: unknown): void {
    if (this.has(keyword) && this.get(keyword) === value) return;
    this.#copyForChange().set(keyword, value);
  }

  delete(keyword: string): void {
    if (this.has(keyword)) this.#copyForChange().delete(keyword);
  }

  /** Deletes keywords, and records that the schema may accept more values than before. */
  widen(...keywords: readonly string[]): void {
    for (const keyword of keywords) this.delete(keyword);
    this.isWider = true;
  }

  get result(): RepairedSchema {
    const schema = this.#copy === undefined ? this.#original : Object.fromEntries(this.#copy);
    return { schema, isWider: this.isWider };
  }

  #copyForChange(): Map<string, unknown> {
    return (this.#copy ??= new Map(Object.entries(this.#original)));
  }
}
