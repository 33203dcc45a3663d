// Reads questions as JSON from standard input and answers what the page would say: the tests compare it with the command line.
import { told } from "../../src/holdfast/http/static/js/events.js";
import { dollars } from "../../src/holdfast/http/static/js/say.js";
import { inUtc, spoken } from "../../src/holdfast/http/static/js/time.js";

let text = "";
for await (const piece of process.stdin) text += piece;
inUtc(true);
const says = { spoken: (ms) => spoken(ms), dollars, told: (event) => told(event) };
process.stdout.write(JSON.stringify(JSON.parse(text).map(([what, given]) => says[what](given))));
