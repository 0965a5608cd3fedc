/** The smallest program for this runtime: the baseline for the start-up time. */
console.log("hello");
