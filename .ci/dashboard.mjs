// Called by .ci/dashboard.
//
//	node dashboard.mjs lists FILE PORT           serves an own list
//	node dashboard.mjs draw URL FILE SECONDS     draws what a Prometheus knows of the last SECONDS
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { pathToFileURL } from 'node:url'

function serve(file, port) {
  createServer(async (_, w) => w.end(await readFile(file))).listen(Number(port), '127.0.0.1')
}

// ask sends the query of a panel with what Grafana writes in place of its variables.
// $__rate_interval is four times the scrape interval, see Grafana's page "Prometheus template variables".
async function ask(prometheus, target, range) {
  const scrape = 2
  const step = Math.max(scrape, Math.ceil(range.seconds / 500))
  const query = target.expr
    .replaceAll('$__rate_interval', `${Math.max(step + scrape, 4 * scrape)}s`)
    .replaceAll('$instance', '.*')
  const about = target.instant ? { time: range.to } : { start: range.to - range.seconds, end: range.to, step }
  const url = `${prometheus}/api/v1/query${target.instant ? '' : '_range'}?${new URLSearchParams({ query, ...about })}`
  const answer = await (await fetch(url)).json()
  if (answer.status !== 'success') throw new Error(`${target.expr}: ${answer.error}`)
  return { target, step, result: answer.data.result }
}

// hasNumber says whether a series has a value: a quotient of nothing is NaN.
const hasNumber = series => (series.values ?? [series.value]).some(([, v]) => Number.isFinite(Number(v)))

// Panels that are empty unless something is wrong, or that the test server cannot fill.
const mayBeEmpty = ['FRAME_ONLY']

async function draw(prometheus, file, seconds) {
  const { default: puppeteer } = await import('puppeteer-core')
  const { default: sharp } = await import('sharp')
  const dashboard = JSON.parse(await readFile('safebrowsing.json'))
  const range = { to: Math.floor(Date.now() / 1000), seconds: Number(seconds) }
  const panels = []
  for (const p of dashboard.panels) {
    panels.push({ ...p, answers: await Promise.all((p.targets ?? []).map(t => ask(prometheus, t, range))) })
  }
  const drawn = panels.filter(p => p.answers.some(a => a.result.some(hasNumber)))
  const bad = panels
    .filter(p => p.type !== 'row' && !mayBeEmpty.includes(p.title) && !drawn.includes(p))
    .map(p => `the panel ${p.title} has no data`)

  const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] })
  const page = await browser.newPage()
  page.on('pageerror', e => console.log(`the page throws ${e.stack ?? e}`))
  page.on('request', r => { if (!/^(file|data):/.test(r.url())) bad.push(`the page loads ${r.url()}`) })
  await page.setViewport({ width: 1280, height: 800 })
  await page.goto(pathToFileURL('view.html')) // a blank page has no localStorage, which the components read
  await page.evaluate((t, d, p, r) => window.drawDashboard(t, d, p, r), dashboard.title, dashboard.description, panels, range)
  await page.waitForNetworkIdle({ idleTime: 1000 })
  bad.push(...await page.evaluate(() => window.cutTitles()))
  const whole = await page.screenshot({ fullPage: true })
  await browser.close()
  await sharp(whole).png({ palette: true, effort: 10 }).toFile(file)
  for (const line of bad) console.log(line)
  if (bad.length > 0) process.exit(1)
  console.log(`${file}: ${drawn.length} panels have data`)
}

const [command, ...args] = process.argv.slice(2)
if (command === 'lists') serve(...args)
if (command === 'draw') await draw(...args)
