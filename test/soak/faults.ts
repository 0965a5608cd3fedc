/** What was found to be wrong: all of it counted, the first of it kept. */
export class Faults {
  readonly texts: string[] = [];
  count = 0;
  readonly #began = performance.now();
  readonly #tell: (text: string) => void;

  /** @param tell gets what is kept, as soon as it is found. */
  constructor(tell: (text: string) => void) {
    this.#tell = tell;
  }

  add(text: string): void {
    this.count++;
    if (this.texts.length >= KEPT) return;
    const seconds = ((performance.now() - this.#began) / 1000).toFixed(2);
    const line = `${seconds} s: ${text.slice(0, LONGEST)}`;
    this.texts.push(line);
    this.#tell(line);
  }
}

const KEPT = 20;
/** Characters. */
const LONGEST = 500;
