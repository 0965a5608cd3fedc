import type { Reconnect } from "../manifest/schema.ts";

/** Whether no attempt follows that one of a series. */
export function isExhausted({ policy, maxAttempts }: Reconnect, attempt: number): boolean {
  return policy === "none" || (maxAttempts > 0 && attempt >= maxAttempts);
}

/** Only so many attempts of a series come sooner than this, in ms: nothing may start without end. */
const HASTE = { attempts: 10, pause: 1000 };

/** How long to wait after that attempt of a series, in ms; `random` in 0…1 takes its part away. */
export function delayAfter(attempt: number, reconnect: Reconnect, random: number): number {
  const least = attempt < HASTE.attempts ? 0 : HASTE.pause;
  if (reconnect.policy !== "exponential") return least;
  const { base, max, jitter } = reconnect;
  const whole = Math.min(max, base * 2 ** Math.max(0, attempt - 1));
  return Math.max(least, whole * (1 - jitter * random));
}
