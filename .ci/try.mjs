// Called by .ci/page with the folder of the web site and the program safebrowsing: the page "Try it" must
// say the same as the program, load nothing but its files, and send nothing that is typed.
import axe from 'axe-core'
import puppeteer from 'puppeteer-core'
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { extname, join } from 'node:path'

const [site, program] = process.argv.slice(2)
const types = { '.html': 'text/html', '.css': 'text/css', '.js': 'text/javascript', '.wasm': 'application/wasm' }
const asked = new Set()
const server = createServer((q, answer) => {
  asked.add(q.url)
  const file = join(site, q.url)
  if (!existsSync(file)) return answer.writeHead(404).end()
  answer.writeHead(200, { 'Content-Type': types[extname(file)] }).end(readFileSync(file))
}).listen(0, '127.0.0.1')
await new Promise(resolve => server.on('listening', resolve))
const url = `http://127.0.0.1:${server.address().port}/try.html`
const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] })
const page = await browser.newPage()
const bad = []
page.on('pageerror', e => bad.push(`the page fails: ${e}`))
await page.goto(url + '#from.the.fragment.example')
await page.waitForSelector('#expressions tr')
const files = asked.size
const shown = () => page.$$eval('#expressions tr', rows => rows.map(r => [...r.cells].slice(0, 2).map(c => c.textContent)))
const verdict = () => page.$eval('#verdict', e => e.textContent)
const type = async text => {
  await page.$eval('#text', (e, text) => { e.value = text }, text)
  await page.click('button')
}
const texts = ['www.example.com', 'a.b.c.d.example.co.uk', 'https://user@login.phishing.example:8443/a/b/c/d/e.html?x=1#y', 'http://3279880203/blah', 'münchen.example']
for (const text of ['from.the.fragment.example', ...texts]) {
  if (text !== 'from.the.fragment.example') await type(text)
  const want = JSON.parse(execFileSync(program, ['expressions', '-json', text])).expressions.map(x => [x.expression, x.sha256])
  const got = await shown()
  if (want.length === 0 || JSON.stringify(got) !== JSON.stringify(want)) bad.push(`${text}: the page says ${JSON.stringify(got)}, the program ${JSON.stringify(want)}`)
}
for (const [text, part] of [['nas.local', 'Nothing leaves, ever'], ['192.168.1.1', 'Nothing leaves, ever'], ['http://[::1', 'no name and no URL']]) {
  await type(text)
  const says = await verdict()
  if (!says.includes(part) || (await shown()).length > 0) bad.push(`${text}: the page says ${says}`)
}
const left = await page.evaluate(() => fetch('https://example.com/').then(() => 'left', () => ''))
if (left) bad.push('the policy of the page lets a request leave')
await page.evaluate(axe.source)
for (const v of (await page.evaluate(() => window.axe.run({ resultTypes: ['violations'] }))).violations) bad.push(`${v.id}: ${v.help}`)
if (asked.size !== files) bad.push(`the page has asked for ${[...asked]} since it was loaded`)
await page.screenshot({ path: 'try.png' })
await browser.close()
server.close()
for (const line of bad) console.log(`try.html: ${line}`)
if (bad.length > 0) process.exit(1)
console.log(`the page says what the program says of ${texts.length + 1} names and URLs, and asks for its ${files} files only: ${[...asked].join(' ')}`)
