import type { ValueDifference } from "./parameters.ts";
import type { RecordedExchange } from "./exchanges.ts";
import type { NearestMatch } from "./matcher.ts";

/** So many divergences are told one by one. */
const MOST_TOLD = 20;
/** So many differences are told of each. */
const MOST_DIFFERENCES = 3;

/** What was asked, as far as it is told: its method, and the name or URI in it, which is looked for only then. */
export interface ReplayedRequest {
  readonly server: string;
  readonly method: string;
  readonly what: string | undefined;
}

/** Where clients did something else than was recorded; told as it happens, and counted. */
export class ReplayReport {
  readonly #tell: (text: string) => void;
  readonly #exhausted = new Set<string>();
  #told = 0;
  #played = 0;
  #repeated = 0;
  #unknown = 0;
  #disordered = 0;
  #otherwise = 0;

  /** @param tell takes one line at a time */
  constructor(tell: (text: string) => void) {
    this.#tell = tell;
  }

  get hasDiverged(): boolean {
    return this.#unknown + this.#disordered + this.#otherwise > 0;
  }

  played(): void {
    this.#played++;
  }

  /** No divergence: a measurement makes the same request again and again. */
  repeated(asked: ReplayedRequest, scene: RecordedExchange): void {
    this.#repeated++;
    if (this.#exhausted.has(asked.server)) return;
    this.#exhausted.add(asked.server);
    const text = `was made more often than was recorded: the last answer (line ${scene.line}) is given again, to all that are`;
    this.#tell(`${describe(asked)} ${text}`);
  }

  /** @returns what its client is told */
  unknown(asked: ReplayedRequest, nearest: NearestMatch | undefined): string {
    this.#unknown++;
    const near =
      nearest === undefined
        ? "nothing of that kind was"
        : `the nearest is on line ${nearest.scene.line}, with ${list(nearest.differences)}`;
    const text = `${describe(asked)} was not recorded: ${near}`;
    this.#diverged(text);
    return text;
  }

  disordered(asked: ReplayedRequest, scene: RecordedExchange, skipped: RecordedExchange): void {
    this.#disordered++;
    this.#diverged(
      `${describe(asked)}, line ${scene.line}, comes before what was recorded first: ${skipped.method} of line ${skipped.line}`,
    );
  }

  /** A server's question was answered otherwise. */
  answered(asked: ReplayedRequest, line: number, differences: readonly ValueDifference[]): void {
    this.#otherwise++;
    this.#diverged(
      `the question of line ${line}, for ${describe(asked)}, was answered with ${list(differences)}`,
    );
  }

  /** What became of it all, in one line. @param unplayed how many recorded requests were never made */
  summary(unplayed: number): string {
    const parts = [
      `${count(this.#played, "request")} answered as recorded`,
      `${this.#repeated} again with the last answer`,
      `${this.#unknown} not recorded`,
      `${this.#disordered} out of order`,
      `${count(this.#otherwise, "question")} answered otherwise`,
      `${unplayed} recorded and never made`,
    ];
    return `replayed: ${parts.join(", ")}`;
  }

  #diverged(text: string): void {
    this.#told++;
    if (this.#told <= MOST_TOLD) this.#tell(`diverged: ${text}`);
    if (this.#told === MOST_TOLD) this.#tell("diverged so often that the rest is only counted");
  }
}

function describe({ server, method, what }: ReplayedRequest): string {
  return `${server}: ${method}${what === undefined ? "" : ` of ${what}`}`;
}

function list(differences: readonly ValueDifference[]): string {
  const shown = differences
    .slice(0, MOST_DIFFERENCES)
    .map(({ path, recorded, asked }) => `${path} ${recorded} and not ${asked}`);
  const more = differences.length - shown.length;
  return shown.join("; ") + (more > 0 ? `; and ${more} more differences` : "");
}

function count(number: number, what: string): string {
  return `${number} ${number === 1 ? what : `${what}s`}`;
}
