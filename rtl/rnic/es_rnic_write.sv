// Write side of the DMA controller: data of received segments in order, tokens behind them, CQEs between them.
//
// A flag is a beat of 8 bytes; a CQE behind it is written when it is in memory. A token comes out when all data in front of it are in memory (their write
// responses have come): acknowledgement, CQE and Read begin there. Data go with no clock between pieces.
module es_rnic_write #(
    parameter int DATA_W = 64
) (
    input wire clk,
    input wire rst,

    // Commands in order: a piece of data, or a token.
    input  wire                      [63:0] c_address,
    input  wire                      [15:0] c_bytes,
    input  wire es_rnic_pkg::token_t        c_token,
    input  wire                             c_is_token,
    input  wire                             c_valid,
    output logic                            c_ready,

    input  wire  [  DATA_W-1:0] s_data,
    input  wire  [DATA_W/8-1:0] s_strb,
    input  wire                 s_last,
    input  wire                 s_valid,
    output logic                s_ready,

    input  wire  [ 63:0] cqe_address,
    input  wire  [255:0] cqe_data,
    input  wire  [ 15:0] cqe_vector,
    input  wire          cqe_irq,
    input  wire          cqe_flag,     // 8 bytes
    input  wire          cqe_valid,
    output logic         cqe_ready,

    output es_rnic_pkg::token_t        token,
    output logic                       token_valid,
    input  wire                        token_ready,
    output logic                [15:0] irq_vector,
    output logic                       irq_valid,

    // For FENCE: bursts asked for and answered; a piece of data was taken.
    output logic [15:0] asked,
    output logic [15:0] answered,
    output logic        put_taken,

    output logic [        63:0] m_axi_awaddr,
    output logic [         7:0] m_axi_awlen,
    output logic [         1:0] m_axi_awburst,
    output logic                m_axi_awvalid,
    input  wire                 m_axi_awready,
    output logic [  DATA_W-1:0] m_axi_wdata,
    output logic [DATA_W/8-1:0] m_axi_wstrb,
    output logic                m_axi_wlast,
    output logic                m_axi_wvalid,
    input  wire                 m_axi_wready,
    input  wire                 m_axi_bvalid,
    output logic                m_axi_bready
);
  localparam int B = DATA_W / 8;
  localparam int LB = $clog2(B);
  localparam logic [1:0] Incr = 2'b01;
  localparam logic [1:0] Wrap = 2'b10;
  localparam int CB = DATA_W >= 256 ? 1 : 256 / DATA_W;  // beats of a CQE

  typedef enum logic [1:0] {
    Idle,
    Data,
    Cqe
  } state_t;
  state_t state;

  logic ends, free;
  logic [7:0] beat;
  logic [511:0] cqe_left;
  logic [DATA_W/8-1:0] cqe_strb;
  logic take_data, take_token, take_cqe, waits_ready;
  logic is_flag, flag_there;
  logic [15:0] flag_after, flag_lag;  // bursts

  assign m_axi_bready = 1'b1;
  assign m_axi_wvalid = state == Data ? s_valid : state == Cqe;
  assign m_axi_wdata = state == Data ? s_data : cqe_left[DATA_W-1:0];
  assign m_axi_wstrb = state == Data ? s_strb : cqe_strb;
  assign m_axi_wlast = state == Data ? s_last : is_flag || beat == 8'(CB - 1);
  assign s_ready = state == Data && m_axi_wready;
  assign ends = m_axi_wvalid && m_axi_wready && m_axi_wlast;
  assign free = (state == Idle || ends) && (!m_axi_awvalid || m_axi_awready);

  assign flag_lag = answered - flag_after;
  assign flag_there = !flag_lag[15];
  assign take_cqe = free && cqe_valid && (cqe_flag || flag_there);
  assign cqe_ready = take_cqe;
  assign take_data = free && !take_cqe && c_valid && !c_is_token;
  assign put_taken = take_data;
  assign take_token = c_valid && c_is_token && waits_ready;
  assign c_ready = take_data || take_token;

  always_ff @(posedge clk) begin
    if (m_axi_awready) m_axi_awvalid <= 1'b0;
    if (ends) state <= Idle;
    if (state == Cqe && m_axi_wready) begin
      beat <= beat + 1'b1;
      cqe_left <= 512'({512'b0, cqe_left} >> DATA_W);
    end
    if (take_data) begin
      m_axi_awaddr <= {c_address[63:LB], LB'(0)};
      m_axi_awburst <= Incr;
      m_axi_awlen <= 8'((16'(c_address[LB-1:0]) + c_bytes - 1'b1) >> LB);
      m_axi_awvalid <= 1'b1;
      state <= Data;
    end
    if (take_cqe) begin
      // Its second half first, so that the word with PHASE is written last.
      m_axi_awaddr <= CB > 1 ? {cqe_address[63:5], 5'd16} : {cqe_address[63:LB], LB'(0)};
      m_axi_awburst <= CB > 1 ? Wrap : Incr;
      m_axi_awlen <= 8'(CB - 1);
      m_axi_awvalid <= 1'b1;
      state <= Cqe;
      beat <= '0;
      is_flag <= cqe_flag;
      // 32 bytes, aligned to 32: in the upper half of a beat of 64.
      if (B == 64 && cqe_address[5]) cqe_left <= {cqe_data, 256'b0};
      else cqe_left <= {256'b0, CB > 1 ? {cqe_data[127:0], cqe_data[255:128]} : cqe_data};
      cqe_strb <= B == 64 ? (cqe_address[5] ? ~(B'(0)) << 32 : ~(~(B'(0)) << 32)) : '1;
      if (cqe_flag) begin
        m_axi_awaddr <= {cqe_address[63:LB], LB'(0)};
        m_axi_awburst <= Incr;
        m_axi_awlen <= '0;
        cqe_left <= 512'(cqe_data[63:0]) << {cqe_address[LB-1:0], 3'b000};
        cqe_strb <= B'(8'hFF) << cqe_address[LB-1:0];
        flag_after <= asked + 1'b1;
      end
    end
    asked <= asked + 16'(take_data || take_cqe);
    answered <= answered + 16'(m_axi_bvalid);
    if (rst) begin
      m_axi_awvalid <= 1'b0;
      state <= Idle;
      asked <= '0;
      answered <= '0;
      flag_after <= '0;
    end
  end

  // Tokens wait until as many bursts have been answered as had been asked for when they came. So do interrupts.
  logic [15:0] token_after, irq_after, token_lag, irq_lag;
  logic waiting, irq_waiting, irq_room;

  assign token_lag = answered - token_after;
  assign irq_lag   = answered - irq_after;

  es_fifo #(
      .WIDTH($bits(es_rnic_pkg::token_t) + 16),
      .DEPTH(16)
  ) tokens (
      .clk,
      .rst,
      .s_data ({asked, c_token}),
      .s_valid(c_valid && c_is_token),
      .s_ready(waits_ready),
      .m_data ({token_after, token}),
      .m_valid(waiting),
      .m_ready(token_valid && token_ready)
  );
  assign token_valid = waiting && !token_lag[15];

  // More than 16 interrupts behind writes are one: the driver takes all CQEs that are there.
  es_fifo #(
      .WIDTH(32),
      .DEPTH(16)
  ) interrupts (
      .clk,
      .rst,
      .s_data ({asked + 1'b1, cqe_vector}),
      .s_valid(take_cqe && cqe_irq && !cqe_flag),
      .s_ready(irq_room),
      .m_data ({irq_after, irq_vector}),
      .m_valid(irq_waiting),
      .m_ready(irq_valid)
  );
  assign irq_valid = irq_waiting && !irq_lag[15];
endmodule
