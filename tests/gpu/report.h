// What the GPU check found: rows of a Markdown table. Used by one thread.
#ifndef HVD_P3_TESTS_GPU_REPORT_H_
#define HVD_P3_TESTS_GPU_REPORT_H_

#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace hvd_p3 {

class Report {
 public:
  void Check(const std::string& what, bool passed, const std::string& numbers) {
    rows_.push_back({what, passed ? "pass" : "**fail**", numbers});
    passed_ &= passed;
  }
  // Nothing to pass: only numbers.
  void Measured(const std::string& what, const std::string& numbers) {
    rows_.push_back({what, "", numbers});
  }

  bool passed() const { return passed_; }

  void Print(std::ostream& output) const {
    output << "| check | result | numbers |\n| --- | --- | --- |\n";
    for (const Row& row : rows_) {
      output << "| " << row.what << " | " << row.result << " | " << row.numbers << " |\n";
    }
  }

 private:
  struct Row {
    std::string what;
    std::string result;
    std::string numbers;
  };
  std::vector<Row> rows_;
  bool passed_ = true;
};

}  // namespace hvd_p3

#endif  // HVD_P3_TESTS_GPU_REPORT_H_
