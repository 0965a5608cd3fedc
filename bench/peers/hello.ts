/** What any program of this runtime needs at least: the yardstick for starting. */
console.log("hello");
