// Sort a table by the pressed heading; pressing again turns the order round.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const key = (row, i) => row.cells[i].dataset.value ?? row.cells[i].textContent.trim();
  heads.forEach((head, i) => {
    head.querySelector("button").addEventListener("click", () => {
      const numeric = head.classList.contains("n");
      const falling = numeric ? head.ariaSort !== "descending" : head.ariaSort === "ascending";
      heads.forEach((other) => (other.ariaSort = "none"));
      head.ariaSort = falling ? "descending" : "ascending";
      const rows = [...table.tBodies[0].rows].sort((one, two) => {
        const [a, b] = [key(one, i), key(two, i)];
        if (a === "" || b === "") return (a === "") - (b === "");
        const order = numeric ? a - b : a.localeCompare(b);
        return falling ? -order : order;
      });
      table.tBodies[0].append(...rows);
    });
  });
}
