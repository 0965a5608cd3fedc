/** A check that fails through the hub, and always will until somebody else changes something. */
export interface ExpectedFailure {
  readonly suite: string;
  readonly scenario: string;
  readonly check: string;
  /** Why that is no fault of the hub. */
  readonly reason: string;
}

/** One that passes after all must be taken out. */
export const EXPECTED: readonly ExpectedFailure[] = [];
