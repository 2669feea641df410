-- Makes a manual page of a document, as a filter of pandoc. Needs the metadata
-- page (its name) and source (the path of the document).

local repository = "https://github.com/coredns-safebrowsing/safebrowsing/blob/HEAD/"
local upper = (pandoc.text or require "text").upper -- before and since pandoc 3
local page, source

-- page_of returns the manual page that is made of a document, or nil.
local function page_of(path)
  if path == "docs/corefile.md" then return "coredns-safebrowsing", "7" end
  if path == "docs/command-line.md" then return "safebrowsing", "1" end
  local name = path:match("^docs/([%w-]+)%.md$")
  if name then return "coredns-safebrowsing-" .. name, "7" end
end

-- resolve returns the path in the repository of a link in the source.
local function resolve(target)
  local path = (source:match("^(.*/)") or "") .. target
  repeat
    local n
    path, n = path:gsub("[^/]+/%.%./", "", 1)
  until n == 0
  return path
end

-- Other pages are named after the text of the link, and other files by their URL.
local function link(l)
  if l.target:match("^%a+:") then return nil end
  local target = l.target:gsub("#.*", "")
  if target == "" then return l.content end
  local path = resolve(target)
  local name, section = page_of(path)
  local out = l.content
  if name then
    -- \- is a hyphen at which no line is broken: a name in two parts is not found.
    local raw = "(\\f[B]" .. name:gsub("-", "\\-") .. "\\f[R](" .. section .. "))"
    out:extend { pandoc.Space(), pandoc.RawInline("man", raw) }
    return out
  end
  return pandoc.Link(l.content, repository .. path)
end

-- What is typed literally is bold (man-pages(7)). pandoc would set it in a font
-- that mandoc does not know.
local function code(c) return pandoc.Strong { pandoc.Str(c.text) } end

-- columns returns how many columns of a terminal each column of a table gets.
-- wants are the widths of its longest text, words the ones of its longest word. If not all
-- fit, a column keeps its longest word, and shares what is left by the root of what
-- it lacks, so that a long text does not take everything.
local function columns(wants, words)
  local left, lacks, roots = 73, 0, 0 -- 80 without the indent of text
  for i, want in ipairs(wants) do
    left = left - words[i] - (i > 1 and 3 or 0) -- 3 between columns (tbl(1))
    lacks, roots = lacks + want - words[i], roots + math.sqrt(want - words[i])
  end
  if lacks <= left then return wants end
  local all = {}
  for i, want in ipairs(wants) do
    all[i] = words[i] + math.max(0, left) * math.sqrt(want - words[i]) / roots
  end
  return all
end

-- Without a width, troff gives each column the same share, however full it is.
local function table_widths(t)
  local simple = pandoc.utils.to_simple_table(t)
  local wants, words = {}, {}
  for _, row in ipairs { simple.header, table.unpack(simple.rows) } do
    for i, cell in ipairs(row) do
      local text = pandoc.utils.stringify(cell)
      wants[i] = math.max(wants[i] or 1, utf8.len(text))
      for word in text:gmatch("%S+") do words[i] = math.max(words[i] or 1, utf8.len(word)) end
      words[i] = words[i] or 1
    end
  end
  for i, n in ipairs(columns(wants, words)) do
    simple.widths[i] = math.floor(n) / 70 -- pandoc makes n columns of it
  end
  return pandoc.utils.from_simple_table(simple)
end

local function meta(m)
  page, source = pandoc.utils.stringify(m.page), pandoc.utils.stringify(m.source)
end

-- The title becomes the section NAME, in the form that whatis(1) reads, unless the
-- document has one.
local function document(d)
  local title = table.remove(d.blocks, 1)
  assert(title.t == "Header" and title.level == 1, source .. ": no title in the first line")
  local blocks = d.blocks
  if pandoc.utils.stringify(blocks[1]) == "Name" then
    blocks[2].content[1] = pandoc.Str(page)
  else
    local text = page .. " - CoreDNS plugin safebrowsing: " .. pandoc.utils.stringify(title)
    table.insert(blocks, 1, pandoc.Header(2, "Name"))
    table.insert(blocks, 2, pandoc.Para { pandoc.Str(text) })
    if blocks[3].t ~= "Header" then table.insert(blocks, 3, pandoc.Header(2, "Description")) end
  end
  return d
end

return {
  { Meta = meta },
  { Link = link },
  { Code = code, Table = table_widths },
  { Pandoc = document },
  { Header = function(h)
    h.level = h.level - 1
    if h.level == 1 then
      return h:walk { Str = function(s) return pandoc.Str(upper(s.text)) end }
    end
    return h
  end },
}
