import type { Schema } from "./keywords.ts";

/** A repaired schema. */
export interface Outcome {
  readonly schema: unknown;
  /** Whether it may accept values that it did not accept before. It never accepts fewer. */
  readonly isWider: boolean;
}

/** A schema that is being changed. */
export class Draft {
  isWider = false;
  readonly #before: Schema;
  /** Copied at the first change: most schemas need none. */
  #parts: Map<string, unknown> | undefined;

  constructor(schema: Schema) {
    this.#before = schema;
  }

  keywords(): string[] {
    return this.#parts === undefined ? Object.keys(this.#before) : [...this.#parts.keys()];
  }

  has(keyword: string): boolean {
    return this.#parts?.has(keyword) ?? Object.hasOwn(this.#before, keyword);
  }

  get(keyword: string): unknown {
    if (this.#parts !== undefined) return this.#parts.get(keyword);
    return Object.hasOwn(this.#before, keyword) ? this.#before[keyword] : undefined;
  }

  set(keyword: string, value: unknown): void {
    if (this.has(keyword) && this.get(keyword) === value) return;
    this.#change().set(keyword, value);
  }

  delete(keyword: string): void {
    if (this.has(keyword)) this.#change().delete(keyword);
  }

  /** Deletes keywords that may have rejected values. */
  widen(...keywords: readonly string[]): void {
    for (const keyword of keywords) this.delete(keyword);
    this.isWider = true;
  }

  get outcome(): Outcome {
    const schema = this.#parts === undefined ? this.#before : Object.fromEntries(this.#parts);
    return { schema, isWider: this.isWider };
  }

  #change(): Map<string, unknown> {
    return (this.#parts ??= new Map(Object.entries(this.#before)));
  }
}
