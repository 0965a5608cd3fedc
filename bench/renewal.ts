/**
 * Processes that race for one rotating refresh token: what the authorization server sees of it, and how long it takes; run by
 * bun.
 *
 *   bun bench/renewal.ts [PROCESSES]
 *
 * By default fifty. The exit code is 0 if it was asked once and all were let in.
 */
import process from "node:process";
import { raceTokenRefresh } from "../test/fixtures/token-refresh-race.ts";

const count = Number(process.argv[2] ?? 50);
const { refreshes, successes, hasRevoked: hasEnded, duration } = await raceTokenRefresh(count);
console.log(
  `${count} processes: ${refreshes} refreshes, ${successes} let in, ${Math.round(duration)} ms`,
);
if (hasEnded) console.log("The authorization server has seen a refresh token twice.");
process.exitCode = refreshes === 1 && successes === count && !hasEnded ? 0 : 1;
